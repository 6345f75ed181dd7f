"""The target `inductor`: its own announcements turned into the events of an observer."""
