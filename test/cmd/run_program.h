/* Running the program as a user does: by the shell. */
#ifndef TEST_CMD_RUN_PROGRAM_H
#define TEST_CMD_RUN_PROGRAM_H

#include <stddef.h>
#include <sys/types.h>

enum { PROGRAM_OUTPUT_BYTES = 1 << 18 };

/* Its absolute path: BUILD/lockstep for BUILD/test/cmd/test_cli, or $LOCKSTEP. */
void program_path(char *path, size_t bytes);
/* Runs `<before> lockstep <arguments>`: the `lockstep` of the build that this test belongs to, or
 * $LOCKSTEP. output receives what it printed (both streams). Returns its exit code. */
int program_run(const char *before, const char *arguments, char output[PROGRAM_OUTPUT_BYTES]);
/* The same of any shell line. */
int program_shell(const char *line, char output[PROGRAM_OUTPUT_BYTES]);
/* As program_run; fails the test where the exit code differs or the output lacks words. */
void program_expect_under(const char *before, const char *arguments, int code, const char *words);
void program_expect(const char *arguments, int code, const char *words);
/* The same with exit code 0; fails the test too where it takes a larger resident set. With
 * sanitizers it may take any. */
void program_expect_within(const char *arguments, const char *words, size_t bytes);

/* Starts a shell with the line, in a session of its own, outside of any allocation of Slurm. It is
 * sent `signal` when this program ends (../support/child.h). */
pid_t program_start(const char *line, int signal);

/* Makes a small corpus in the folder: text.txt, and corpus_train and corpus_valid of its bytes. */
void program_corpus(const char *folder);
/* Processes of MPI jobs that run in the folder (NULL: in any) and whose command line has all the
 * words, by rank; 0 for those that are not there. Launchers and shells hold the words too, but no
 * rank. Returns how many there are. */
int program_ranks(const char *folder, const char *const *words, int word_count, pid_t *pids,
                  int ranks);
/* A pause while a job that prints to the file log goes on; fails the test if it has ended. */
void program_await_job(pid_t launcher, const char *log);

#endif
