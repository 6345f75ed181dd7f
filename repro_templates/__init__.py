"""What emitted scripts are made of; knows torch only."""
