// A recorded process from its first to its last moment.
#pragma once

// Writes what there is, the connections that are open, and the end of the log. Once.
void recorder_finish(void);
