/* A checkpoint gets its name once all of it is on the disk: the calls that make it durable, in
 * their order. Its broken twin gives the name first. */
#include "../support/checkpoints.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the calls ------------------------------------------------------------------------------- */

enum { CALLS_MAX = 200, FILES = 3 };
enum kind { WRITE, SYNC, RENAME };
static struct call {
    enum kind kind;
    ino_t file;        /* a file keeps its number when its name changes */
    char to[PATH_MAX]; /* of a rename */
} calls[CALLS_MAX];
static int count;
static bool name_first; /* the twin: what is below the temporary folder is synced afterwards */
static ino_t late[CALLS_MAX];
static int late_count;

static void call_add(enum kind kind, ino_t file, const char *to)
{
    assert_true(count < CALLS_MAX);
    calls[count].kind = kind;
    calls[count].file = file;
    snprintf(calls[count++].to, sizeof calls[0].to, "%s", to);
}

static ino_t number_of(int file)
{
    struct stat status;
    assert_int_equal(fstat(file, &status), 0);
    return status.st_ino;
}

static bool below_temporary(int file)
{
    return strstr(path_of(file), "/step-00000001.tmp") != NULL;
}

WRAPPED(write);
ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    call_add(WRITE, number_of(file), "");
    return __real_write(file, data, bytes);
}

WRAPPED(fsync);
int __wrap_fsync(int file)
{
    if (name_first && below_temporary(file))
        late[late_count++] = number_of(file);
    else
        call_add(SYNC, number_of(file), "");
    return 0; /* nothing here outlasts the machine */
}

WRAPPED(rename);
int __wrap_rename(const char *from, const char *to)
{
    call_add(RENAME, 0, to);
    return __real_rename(from, to);
}

WRAPPED(renameat2);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to,
                     unsigned flags)
{
    call_add(RENAME, 0, to);
    int status = __real_renameat2(from_folder, from, to_folder, to, flags);
    while (late_count > 0)
        call_add(SYNC, late[--late_count], "");
    return status;
}

/* ---- their order ----------------------------------------------------------------------------- */

/* The last call of that kind about the file, or to that name; -1: there is none. */
static int last_of(enum kind kind, ino_t file, const char *to)
{
    int i = count - 1;
    while (i >= 0 &&
           (calls[i].kind != kind || (to ? strcmp(calls[i].to, to) != 0 : calls[i].file != file)))
        i--;
    return i;
}

static ino_t file_of(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_ino;
}

/* Each file is synced behind its last write and before the folder's name; so is the folder, behind
 * the last name that a file in it got; and the folder above it, once it has the name. "" if so. */
static const char *order_judge(const char *run)
{
    static char wrong[2 * PATH_MAX];
    char folder[PATH_MAX], path[PATH_MAX + 300];
    int files = 0, last_name = -1;
    wrong[0] = '\0';
    snprintf(folder, sizeof folder, "%s/checkpoints/step-00000001", run);
    int named = last_of(RENAME, 0, folder);
    assert_true(named >= 0);
    DIR *stream = opendir(folder);
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int wrote = last_of(WRITE, file_of(path), NULL),
            synced = last_of(SYNC, file_of(path), NULL);
        assert_true(wrote >= 0);
        if (synced < wrote || synced > named)
            snprintf(wrong, sizeof wrong, "%s: written at %d, synced at %d, named at %d", path,
                     wrote, synced, named);
        snprintf(path, sizeof path, "%s.tmp/%s", folder, entry->d_name);
        int got = last_of(RENAME, 0, path);
        last_name = got > last_name ? got : last_name;
        files++;
    }
    closedir(stream);
    assert_int_equal(files, FILES);
    int inside = last_of(SYNC, file_of(folder), NULL);
    if (inside < last_name || inside > named)
        snprintf(wrong, sizeof wrong, "%s: synced at %d, its last file got its name at %d", folder,
                 inside, last_name);
    snprintf(path, sizeof path, "%s/checkpoints", run);
    if (last_of(SYNC, file_of(path), NULL) < named)
        snprintf(wrong, sizeof wrong, "%s: not synced behind the name at %d", path, named);
    return wrong;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void write_one(const char *run)
{
    static const float values[12] = {1, 2, 3};
    const struct ls_checkpoint_state about = {.step = 1,
                                              .loss_scale = 1,
                                              .recipe_digest = "0",
                                              .recipe = "",
                                              .fingerprint = "",
                                              .hash = "00112233445566778899aabbccddeeff"};
    const struct ls_tensor_entry entry = {
        .name = "w", .dtype = LS_F32, .dims = 1, .shape = {12}, .data = values};
    const struct checkpoint_tensors parts[2] = {{&entry, NULL, 1}, {&entry, NULL, 1}};
    struct ls_error error = {0};
    count = 0;
    assert_ok(checkpoint_write(run, &about, NULL, parts, NULL, &error), error);
}

/* Anew, and over one of that step. */
CASE_WITH(test_all_is_synced_before_it_has_a_name, scratch_setup, scratch_teardown)
{
    for (int time = 0; time < 2; time++) {
        write_one(*state);
        assert_string_equal(order_judge(*state), "");
    }
}

/* The disk takes one part while the next is hashed and written. */
CASE_WITH(test_no_part_is_waited_for_before_all_are_written, scratch_setup, scratch_teardown)
{
    int parts = 0, first_sync = 0;
    write_one(*state);
    while (first_sync < count && calls[first_sync].kind != SYNC)
        first_sync++;
    for (int i = 0; i < first_sync; i++)
        parts += calls[i].kind == WRITE && last_of(WRITE, calls[i].file, NULL) == i;
    assert_int_equal(parts, 2);
}

CASE_WITH(test_a_name_before_the_files_are_synced_is_caught, scratch_setup, scratch_teardown)
{
    name_first = true;
    write_one(*state);
    name_first = false;
    assert_non_null(strstr(order_judge(*state), "synced at"));
}

SUITE_MAIN(NULL, NULL)
