/* A directory of its own for each test. */
#include "scratch.h"
#include "testing.h"

#include <lockstep/base/file.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int scratch_setup(void **state)
{
    const char *base = getenv("TMPDIR");
    char *directory = malloc(4096);
    snprintf(directory, 4096, "%s/lockstep-test-XXXXXX", base ? base : "/tmp");
    *state = directory;
    return mkdtemp(directory) ? 0 : -1;
}

int scratch_teardown(void **state)
{
    int failed = ls_directory_remove(*state) ? 0 : -1;
    free(*state);
    return failed;
}

const char *scratch_path(const char *directory, const char *name)
{
    static char paths[4][4096];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

void scratch_write(const char *path, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

char *scratch_read(const char *path, size_t *bytes)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        fail_msg("%s: %s", path, strerror(errno));
    size_t size = 0, capacity = 1 << 20;
    char *data = malloc(capacity + 1);
    for (size_t got; (got = fread(data + size, 1, capacity - size, in)) > 0;) {
        size += got;
        if (size == capacity)
            data = realloc(data, (capacity *= 2) + 1);
    }
    fclose(in);
    data[size] = '\0';
    if (bytes)
        *bytes = size;
    return data;
}

int scratch_count(const char *directory)
{
    DIR *stream = opendir(directory);
    if (!stream)
        return 0;
    int count = 0;
    while (readdir(stream))
        count++;
    closedir(stream);
    return count - 2; /* "." and ".." */
}

const char *path_of(int file)
{
    static _Thread_local char path[PATH_MAX];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return path;
}
