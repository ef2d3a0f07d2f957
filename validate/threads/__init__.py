"""Thread logs: recording them (recorder/ has the library), and using them as a second ground truth."""
