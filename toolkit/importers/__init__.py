"""From anything that users have to cases."""
