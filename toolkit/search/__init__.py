"""Block and boundary searches over abstract candidates, in few questions."""
