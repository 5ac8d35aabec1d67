/* Folders of shared memory: a rank makes that of its start, and removes those of earlier starts and
 * of runs that are no more; the last rank of a machine removes it. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "launch/launch_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/lock.h>
#include <lockstep/launch.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder(const char *name)
{
    static char path[4][PATH_MAX];
    static int next;
    char *text = path[next++ % 4];
    snprintf(text, PATH_MAX, "/dev/shm/lockstep-launch-%ld-test-%ld-%s", (long)geteuid(),
             (long)getpid(), name);
    return text;
}

static void put(const char *name, const char *file, const char *text)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder(name), file);
    scratch_write(path, text, strlen(text));
}

/* A folder with a segment in it, of that run; NULL: it names none. It names it at once, as that of
 * a rank does: a launcher elsewhere on this machine sweeps what names a run that nobody holds. */
static void leave(const char *name, const char *run)
{
    char path[2 * PATH_MAX];
    assert_int_equal(mkdir(folder(name), 0700), 0);
    put(name, "vader_segment.host.0.1.2", "x");
    snprintf(path, sizeof path, "%s/.run", folder(name));
    if (run)
        assert_int_equal(ls_file_put(path, run, strlen(run), NULL, NULL), LS_OK);
}

static bool there(const char *name)
{
    return access(folder(name), F_OK) == 0;
}

/* Another launcher may be removing it just now: first the name of its run, the folder last. */
static bool swept(const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/.run", folder(name));
    return access(path, F_OK) != 0;
}

/* What a case that failed has left, too. */
static int teardown(void **state)
{
    char line[2 * PATH_MAX];
    snprintf(line, sizeof line, "rm -rf %s", folder("*"));
    return system(line) || scratch_teardown(state);
}

/* The run is held, as a launcher holds it, so that others on this machine sweep none of its
 * folders; what is held no more is theirs to remove, too. */
CASE_WITH(test_what_is_swept, scratch_setup, teardown)
{
    char run[PATH_MAX], other[PATH_MAX], launched[PATH_MAX], gone[PATH_MAX];
    char launcher[PATH_MAX + 8];
    struct ls_lock own_lock, lock, launch_lock;
    struct ls_error error = {0};
    snprintf(run, sizeof run, "%s", scratch_path(*state, "run"));
    snprintf(other, sizeof other, "%s", scratch_path(*state, "other"));
    snprintf(launched, sizeof launched, "%s", scratch_path(*state, "launched"));
    snprintf(gone, sizeof gone, "%s", scratch_path(*state, "gone"));
    snprintf(launcher, sizeof launcher, "%s/launch", launched);
    assert_int_equal(mkdir(launched, 0755), 0);
    assert_int_equal(ls_lock_take(&own_lock, run, NULL, &error), LS_OK);
    assert_int_equal(ls_lock_take(&lock, other, NULL, &error), LS_OK);
    assert_int_equal(ls_lock_take(&launch_lock, launcher, NULL, &error), LS_OK);
    leave("1", run); /* of an earlier start */
    leave("gone", gone);
    leave("other", other);
    leave("launched", launched);
    leave("new", NULL);
    setenv("OMPI_MCA_btl_vader_backing_directory", folder("2"), 1);
    ls_launch_segments_enter(run);
    assert_true(there("2") && !there("1") && swept("gone"));
    assert_true(there("other") && there("launched") && there("new"));
    ls_lock_release(&lock);
    ls_lock_release(&launch_lock);
    leave("1", run);
    ls_launch_segments_enter(run); /* another rank: it is there */
    assert_true(there("1"));
    setenv("OMPI_MCA_btl_vader_backing_directory", folder("3"), 1);
    ls_launch_segments_enter(run);
    assert_true(there("3") && there("new"));
    assert_true(!there("1") && !there("2") && swept("other") && swept("launched"));
    put("3", "vader_segment.host.0.1.2", "x");
    ls_launch_segments_leave(); /* another rank has not ended */
    assert_true(there("3"));
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/vader_segment.host.0.1.2", folder("3"));
    assert_int_equal(unlink(path), 0);
    ls_launch_segments_leave();
    assert_false(there("3"));
    ls_lock_release(&own_lock);
}

/* Anybody may have put a link there, to a folder of which nothing is to be removed. */
CASE_WITH(test_a_link_is_not_followed, scratch_setup, teardown)
{
    const char *segment = scratch_path(*state, "vader_segment.host.0.1.2");
    scratch_write(segment, "x", 1);
    assert_int_equal(symlink(*state, folder("link")), 0);
    launch_segments_remove(folder("link"));
    assert_int_equal(access(segment, F_OK), 0);
    assert_int_equal(unlink(folder("link")), 0);
}

/* A user's own place is not touched. */
CASE_WITH(test_another_place, scratch_setup, scratch_teardown)
{
    const char *place = scratch_path(*state, "place");
    setenv("OMPI_MCA_btl_vader_backing_directory", place, 1);
    ls_launch_segments_enter(*state);
    assert_int_equal(access(place, F_OK), -1);
    assert_int_equal(mkdir(place, 0755), 0);
    ls_launch_segments_leave();
    assert_int_equal(access(place, F_OK), 0);
    unsetenv("OMPI_MCA_btl_vader_backing_directory");
    ls_launch_segments_enter(*state);
}

SUITE_MAIN(NULL, NULL)
