/* Files of tokens, wherever they lie. */
#include "data/remote_file.h"

#include <lockstep/base.h>
#include <lockstep/base/file.h>
#include <lockstep/base/stored_file.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct data_file {
    char *name;
    int64_t bytes;
    struct remote_file *remote;   /* NULL: a file of this machine, which is */
    struct ls_stored_file *local; /* this one */
};

static bool local_absent(const char *name)
{
    return access(name, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

int data_file_open(const char *name, struct data_remote *remote, struct data_file **out,
                   struct ls_error *error)
{
    *out = NULL;
    struct data_file *file = calloc(1, sizeof *file);
    if (!file)
        return ls_no_memory(error, "to open %.300s", name);
    bool url = ls_url_is(name), there = url || !local_absent(name);
    int status = LS_OK;
    file->name = strdup(name);
    if (!file->name)
        status = ls_no_memory(error, "to open %.300s", name);
    else if (url)
        status = remote_file_open(file->name, remote, &file->remote, &file->bytes, error);
    else if (there)
        status = ls_stored_file_open(&file->local, name, LS_EDATA, error);
    if (!status && file->local)
        file->bytes = ls_stored_file_bytes(file->local);
    if (!status && (file->remote || file->local))
        *out = file;
    else
        data_file_close(file);
    return status;
}

void data_file_close(struct data_file *file)
{
    if (!file)
        return;
    ls_stored_file_close(file->local);
    remote_file_close(file->remote);
    free(file->name);
    free(file);
}

const char *data_file_name(const struct data_file *file)
{
    return file->name;
}

int64_t data_file_bytes(const struct data_file *file)
{
    return file->bytes;
}

bool data_file_is_remote(const struct data_file *file)
{
    return file->remote != NULL;
}

int data_file_look(struct data_file *file, struct ls_error *error)
{
    return file->remote ? LS_OK : ls_stored_file_look(file->local, error);
}

static void range_check(const struct data_file *file, int64_t at, int64_t bytes)
{
    LS_ASSERT(at >= 0 && bytes >= 0 && at <= file->bytes - bytes);
}

int data_file_read(struct data_file *file, int64_t at, int64_t bytes, void *buffer,
                   struct ls_error *error)
{
    range_check(file, at, bytes);
    return file->remote ? remote_file_read(file->remote, at, bytes, buffer, error)
                        : ls_stored_file_read(file->local, at, bytes, buffer, error);
}

int data_file_peek(struct data_file *file, int64_t at, int64_t bytes, void *buffer,
                   struct ls_error *error)
{
    range_check(file, at, bytes);
    return file->remote ? remote_file_peek(file->remote, at, bytes, buffer, error)
                        : ls_stored_file_read(file->local, at, bytes, buffer, error);
}

void data_file_want(struct data_file *file, int64_t at, int64_t bytes)
{
    range_check(file, at, bytes);
    if (file->remote)
        remote_queue(file->remote, at, bytes);
}

int data_file_tries(const struct data_file *file)
{
    return file->remote ? remote_file_tries(file->remote) : 1;
}

void data_file_expect(struct data_file *file, const struct ls_sums *sums, int which)
{
    if (file->remote)
        remote_file_expect(file->remote, sums, which);
}

/* ---- small files ----------------------------------------------------------------------------- */

static int small_fetch(const char *url, const struct ls_net_options *net, size_t limit, bool *there,
                       char **text, size_t *bytes, struct ls_error *error)
{
    struct ls_server *server;
    const struct ls_net_options until = data_net(net);
    int status = ls_server_open(&server, url, &until, error);
    if (status)
        return status;
    struct ls_http_request get = {
        .method = "GET", .key = ls_server_key(server), .limit = limit, .absent_is_fine = true};
    status = ls_http_send(server, &get, error);
    *there = !status && get.code != 404;
    if (*there) {
        *text = get.text;
        *bytes = get.bytes;
        get.text = NULL;
    }
    ls_http_request_release(&get);
    ls_server_close(server);
    return status;
}

int data_small_read(const char *name, const struct ls_net_options *net, size_t limit, bool *there,
                    char **text, size_t *bytes, struct ls_error *error)
{
    *text = NULL;
    *bytes = 0;
    if (ls_url_is(name))
        return small_fetch(name, net, limit, there, text, bytes, error);
    *there = !local_absent(name);
    return *there ? ls_file_read(name, limit, LS_EDATA, text, bytes, error) : LS_OK;
}
