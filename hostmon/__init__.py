"""Host monitors: logs of Collectl and its like into tables, joined on time with the load series."""
