"""Ground truth: event monitors, agreement, accuracy, and the testbed that makes them."""
