"""HTML report and exporters."""
