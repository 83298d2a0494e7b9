/* record_file.h: the file of recorded calls (record.file): a line of JSON for each, written by a thread. Lines that do
 * not fit the queue, or that the disk does not accept, are dropped and counted: no call waits for the file. When the
 * file is full it is renamed to NAME.1, in the place of the one before.
 *
 * {"moonpool":"record 1",…} */
#ifndef MP_TELEMETRY_RECORD_FILE_H
#define MP_TELEMETRY_RECORD_FILE_H

#include "base/base.h"

/* Called for each whole line of the existing file, with its line end. */
typedef void mp_record_reader(mp_str line);

/* Reads the existing lines, the oldest first, at most `bytes` of each file, and begins to append, with mode 0600.
 * Called once, before lines are put. -1 if the file cannot be opened. */
int mp_record_file_open(const char *path, size_t bytes, mp_record_reader *read, mp_err *err);
/* The size that makes the file full. Any thread. */
void mp_record_file_limit(size_t bytes);
/* Any thread. `line` ends with a line end. Does nothing without a file. */
void mp_record_file_put(mp_str line);
/* Writes the queued lines, for at most one second. */
void mp_record_file_close(void);

#endif
