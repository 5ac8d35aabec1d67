/* Temporaries that killed processes left go with the next write of the same path; those that
 * somebody writes stay. */
#include <lockstep/base/temporary.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/scratch.h"
#include "../support/suite.h"

/* No process has it: it is above the kernel's greatest. */
#define NOBODY "4194305"

static const char *const left[] = {"store.bin.tmp-" NOBODY, "store.bin.tmp-4194306"};
static const char *const others[] = {"store.bin",
                                     "store.idx.tmp-" NOBODY, /* of another path */
                                     "a.store.bin.tmp-" NOBODY,
                                     "store.bin.tmp-",
                                     "store.bin.tmp-old",
                                     "store.bin.tmp-" NOBODY "x",
                                     "store.bin.tmp-1", /* that process is there */
                                     "store.bin.tmp-99999999999999999999"};
enum { LEFT = sizeof left / sizeof *left, OTHERS = sizeof others / sizeof *others };

static bool exists(const char *directory, const char *name)
{
    return access(scratch_path(directory, name), F_OK) == 0;
}

static void make(const char *directory)
{
    for (int i = 0; i < LEFT; i++)
        scratch_write(scratch_path(directory, left[i]), "half", 4);
    for (int i = 0; i < OTHERS; i++)
        scratch_write(scratch_path(directory, others[i]), "other", 5);
}

CASE_WITH(test_what_was_left_goes, scratch_setup, scratch_teardown)
{
    struct ls_atomic_file file;
    struct ls_error error = {0};
    make(*state);
    assert_ok(ls_atomic_file_open(&file, scratch_path(*state, "store.bin"), NULL, &error), error);
    ls_atomic_file_hold(&file);
    for (int i = 0; i < LEFT; i++)
        assert_false(exists(*state, left[i]));
    for (int i = 0; i < OTHERS; i++)
        if (!exists(*state, others[i]))
            fail_msg("%s is gone", others[i]);
    ls_atomic_file_write(&file, "new", 3);
    assert_ok(ls_atomic_file_commit(&file, &error), error);
}

/* Such as a process of another host does. */
CASE_WITH(test_what_is_held_stays, scratch_setup, scratch_teardown)
{
    make(*state);
    int held = open(scratch_path(*state, left[0]), O_RDWR | O_CLOEXEC);
    int own = open(scratch_path(*state, "store.bin.tmp-2"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(flock(held, LOCK_EX | LOCK_NB), 0);
    ls_temporary_hold(scratch_path(*state, "store.bin.tmp-2"), own);
    assert_true(exists(*state, left[0]));
    assert_false(exists(*state, left[1]));
    close(held);
    close(own);
}

/* Who cannot hold its own removes nothing. */
CASE_WITH(test_without_a_lock_all_stay, scratch_setup, scratch_teardown)
{
    make(*state);
    ls_temporary_hold(scratch_path(*state, "store.bin.tmp-2"), -1);
    for (int i = 0; i < LEFT; i++)
        assert_true(exists(*state, left[i]));
}

CASE_WITH(test_folders_and_links, scratch_setup, scratch_teardown)
{
    make(*state);
    assert_int_equal(mkdir(scratch_path(*state, "run.tmp-" NOBODY), 0777), 0);
    scratch_write(scratch_path(*state, "run.tmp-" NOBODY "/config.yaml"), "x", 1);
    assert_int_equal(symlink("store.bin", scratch_path(*state, "run.tmp-4194306")), 0);
    assert_int_equal(mkdir(scratch_path(*state, "run.tmp-2"), 0777), 0);
    int own = open(scratch_path(*state, "run.tmp-2"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ls_temporary_hold(scratch_path(*state, "run.tmp-2"), own);
    assert_false(exists(*state, "run.tmp-" NOBODY));
    assert_true(exists(*state, "run.tmp-4194306") && exists(*state, "store.bin"));
    close(own);
}

int main(void)
{
    return suite_run(NULL, NULL);
}
