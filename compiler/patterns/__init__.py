"""Rules as data: a matcher over ATen graphs. The rules themselves stand in the files of passes."""
