/* Folders of shared memory: a rank makes that of its start, and removes those that nobody holds any
 * more; the last rank of a machine removes it. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "launch/launch_private.h"

#include <lockstep/launch.h>

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

/* A folder with a segment in it, of that run; NULL: it names none. Held: it names it once it is, as
 * that of a rank does: a launcher elsewhere on this machine sweeps what nobody holds. Returns the
 * file that holds it. */
static int leave(const char *name, const char *run, bool held)
{
    char path[2 * PATH_MAX];
    assert_int_equal(mkdir(folder(name), 0700), 0);
    put(name, "vader_segment.host.0.1.2", "x");
    snprintf(path, sizeof path, "%s/.run", folder(name));
    int file = run ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (held)
        assert_int_equal(flock(file, LOCK_SH), 0);
    if (run)
        assert_int_equal(write(file, run, strlen(run)), strlen(run));
    if (file >= 0 && !held)
        close(file);
    return held ? file : -1;
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

/* What is held no more is for others on this machine to remove, too. */
CASE_WITH(test_what_is_swept, scratch_setup, teardown)
{
    const char *run = scratch_path(*state, "run");
    leave("1", run, false); /* of an earlier start */
    leave("gone", "/nowhere/run", false);
    leave("new", NULL, false);
    int far = leave("far", "/nowhere/run", true); /* whose run is in another mount namespace */
    setenv("OMPI_MCA_btl_vader_backing_directory", folder("2"), 1);
    ls_launch_segments_enter(run);
    assert_true(there("2") && swept("1") && swept("gone"));
    assert_true(there("far") && !swept("far") && there("new"));
    ls_launch_segments_enter(run); /* another rank, which holds it too */
    assert_true(there("2") && !swept("2"));
    close(far);
    setenv("OMPI_MCA_btl_vader_backing_directory", folder("3"), 1);
    ls_launch_segments_enter(run);
    assert_true(there("3") && !swept("3") && there("new") && swept("2") && swept("far"));
    put("3", "vader_segment.host.0.1.2", "x");
    ls_launch_segments_leave(); /* another rank has not ended */
    assert_true(there("3"));
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/vader_segment.host.0.1.2", folder("3"));
    assert_int_equal(unlink(path), 0);
    ls_launch_segments_leave();
    assert_false(there("3"));
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
