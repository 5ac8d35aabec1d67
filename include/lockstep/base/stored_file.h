/* lockstep/base/stored_file.h - a regular file that is read in pieces.
 *
 *   struct ls_stored_file *file;
 *   ls_stored_file_open(&file, "model.safetensors", LS_ECKPT, &error)
 *   ls_stored_file_read(file, at, bytes, buffer, &error)
 *   ls_stored_file_close(file)
 *
 * Pieces are read by pread, not mapped: a file that is cut or written to meanwhile is an error with
 * its name, where a process that has it mapped would end by SIGBUS. Any number of threads may read
 * one. A process holds few descriptors open, however many files it reads: one that was closed for
 * another is opened again by its name. Everything here is Local. */
#ifndef LOCKSTEP_BASE_STORED_FILE_H
#define LOCKSTEP_BASE_STORED_FILE_H

#include <lockstep/base.h>

LS_C_BEGIN

/* More of a process's files are open only while they are read. */
enum { LS_STORED_FILES_OPEN = 128 };

struct ls_stored_file;
/* code: of a file that is another than was expected, which is no regular file, or which changed
 * since it was opened. LS_EIO and the like for what the system refuses, as of ls_file_open. */
int ls_stored_file_open(struct ls_stored_file **out, const char *path, int code,
                        struct ls_error *error);
/* file may be NULL. Nobody reads it. */
void ls_stored_file_close(struct ls_stored_file *file);
/* As it was opened; borrowed. */
const char *ls_stored_file_name(const struct ls_stored_file *file);
/* Of the whole file when it was opened. */
int64_t ls_stored_file_bytes(const struct ls_stored_file *file);
/* buffer[bytes] = those from `at` on, which lie inside. code if the file ends before, with its size
 * now and then. */
int ls_stored_file_read(struct ls_stored_file *file, int64_t at, int64_t bytes, void *buffer,
                        struct ls_error *error);
/* code if size, time of last change or inode are not those of the file that was opened. Every 256th
 * read looks too. */
int ls_stored_file_look(struct ls_stored_file *file, struct ls_error *error);
/* Whether the system has bytes [at, at + bytes) in memory, by the first, the middle and the last
 * one; true if it does not say. */
bool ls_stored_file_cached(struct ls_stored_file *file, int64_t at, int64_t bytes);
/* Bytes [at, at + bytes) will be read soon: the system reads them ahead. A hint. */
void ls_stored_file_expect(struct ls_stored_file *file, int64_t at, int64_t bytes);

LS_C_END

#endif
