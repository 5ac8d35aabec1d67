/* Writes a checkpoint aside, every rank its own files, and gives it its name when all of it is on
 * the disk. */
#include "ckpt/exchange.h"

#include <lockstep/base/json.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 4 << 20 };

struct ls_checkpoint_writer {
    const struct ls_checkpoint_state *state;
    struct ls_comm *comm; /* NULL: alone */
    const struct ls_fault *fault;
    enum ls_checkpoint_place place;
    bool leads;                            /* makes the folder, and names it */
    json_t *report;                        /* "files" and the parts' tensors: what is written */
    struct ls_safetensors_writer *tensors; /* of the part that is being written, or NULL */
    struct {
        enum ls_checkpoint_part part;
        char name[64];
        const struct ls_tensor_entry *entries;
        const struct ls_tensor_box *boxes;
        size_t count;
        struct ls_safetensors_digests digests;
    } now;                                           /* that part */
    struct ls_safetensors_writer *ended[CKPT_PARTS]; /* parts that are not synced yet */
    int ended_count;
    struct taken {
        int fd;
        char name[64];
    } taken[CKPT_PARTS]; /* of another writer, or in memory: what is copied */
    int taken_count;
    bool staged;
    struct ls_file_maps **maps; /* of the spare's parts, or of what is staged; or NULL */
    bool cancelled;
    char run[PATH_MAX], parent[PATH_MAX], directory[PATH_MAX], temporary[PATH_MAX];
};

static bool is_root(const struct ls_checkpoint_writer *writer)
{
    return !writer->comm || ls_comm_rank(writer->comm) == 0;
}

static int agree(const struct ls_checkpoint_writer *writer, int status, struct ls_error *error)
{
    return writer->comm ? ls_comm_agree(writer->comm, status, error) : status;
}

/* Whether the rank is the one, or the first of its machine. */
static bool leads(const struct ls_comm *comm, enum ls_checkpoint_place place)
{
    if (!comm || place == LS_CKPT_SHARED)
        return !comm || ls_comm_rank(comm) == 0;
    return ls_comm_first_on_machine(comm);
}

static void files_abort(struct ls_checkpoint_writer *writer)
{
    ls_safetensors_writer_abort(writer->tensors);
    writer->tensors = NULL;
    while (writer->ended_count > 0)
        ls_safetensors_writer_abort(writer->ended[--writer->ended_count]);
}

void ls_checkpoint_writer_drop(struct ls_checkpoint_writer *writer)
{
    if (!writer)
        return;
    for (int i = 0; i < writer->taken_count; i++)
        if (writer->taken[i].fd >= 0)
            close(writer->taken[i].fd);
    files_abort(writer);
    free(writer->now.digests.tensors);
    json_decref(writer->report);
    free(writer);
}

static int paths_set(struct ls_checkpoint_writer *writer, const char *run_directory,
                     struct ls_error *error)
{
    char name[40];
    snprintf(name, sizeof name, CKPT_STEP_FORMAT, (long long)writer->state->step);
    snprintf(writer->run, sizeof writer->run, "%s", run_directory);
    int status = ls_path_join(writer->parent, run_directory, CKPT_DIRECTORY, error);
    status = status ? status : ls_path_join(writer->directory, writer->parent, name, error);
    strcat(name, ".tmp");
    return status ? status : ls_path_join(writer->temporary, writer->parent, name, error);
}

/* The folder of the checkpoint `spare`, with its files, becomes the temporary one. Whether it did:
 * a process of an earlier start takes none away. */
static bool spare_take(const struct ls_checkpoint_writer *writer, int64_t spare)
{
    char path[PATH_MAX];
    return spare >= 0 && !ls_checkpoint_path(path, writer->run, spare, NULL) &&
           !ckpt_token_check(writer->run, writer->state->start, NULL) &&
           !ls_fault_check(writer->fault, "rename") && !rename(path, writer->temporary);
}

static int folder_make(const struct ls_checkpoint_writer *writer, int64_t spare,
                       struct ls_error *error)
{
    int status = ckpt_remove_directory(writer->temporary, error);
    status = status ? status : ls_directory_add(writer->parent, writer->fault, error);
    if (status || spare_take(writer, spare))
        return status;
    return ls_directory_add(writer->temporary, writer->fault, error);
}

int ls_checkpoint_writer_open(struct ls_checkpoint_writer **out, const char *run_directory,
                              const struct ls_checkpoint_state *state, int64_t spare,
                              enum ls_checkpoint_place place, struct ls_comm *comm,
                              const struct ls_fault *fault, struct ls_error *error)
{
    struct ls_checkpoint_writer lost = {.comm = comm}, *writer = calloc(1, sizeof *writer);
    int status = LS_OK;
    *out = NULL;
    if (writer) {
        *writer = (struct ls_checkpoint_writer){.state = state,
                                                .comm = comm,
                                                .fault = fault,
                                                .place = place,
                                                .leads = leads(comm, place)};
        writer->report =
            json_pack("{s:{}, s:{}, s:{}}", "files", ckpt_part_names[0], ckpt_part_names[1]);
    }
    if (!writer || !writer->report)
        status =
            ls_error_set(error, LS_ENOMEM, "%s: no memory for a checkpoint writer", run_directory);
    status = status ? status : paths_set(writer, run_directory, error);
    if (!status && writer->leads)
        status = folder_make(writer, spare, error);
    status = agree(writer ? writer : &lost, status, error);
    if (status) {
        if (writer && writer->leads)
            ckpt_remove_directory(writer->temporary, NULL);
        ls_checkpoint_writer_drop(writer);
        return status;
    }
    *out = writer;
    return LS_OK;
}

/* ---- a part ---------------------------------------------------------------------------------- */

static void name_make(char name[64], int rank, int part)
{
    snprintf(name, 64, "shard-%05d-%s-00001-of-00001.safetensors", rank + 1, ckpt_part_names[part]);
}

static json_t *counts(int dims, const int64_t *values)
{
    json_t *list = json_array();
    for (int i = 0; i < dims; i++)
        json_array_append_new(list, json_integer(values ? values[i] : 0));
    return list;
}

static const int64_t *whole_of(const struct ls_checkpoint_writer *writer, size_t i)
{
    return writer->now.boxes ? writer->now.boxes[i].whole : writer->now.entries[i].shape;
}

static const int64_t *offset_of(const struct ls_checkpoint_writer *writer, size_t i)
{
    return writer->now.boxes ? writer->now.boxes[i].offset : NULL;
}

/* DCP_SHARDING_INFO, as torch.distributed.checkpoint reads it. NULL without memory. */
static char *sharding_text(const struct ls_checkpoint_writer *writer)
{
    json_t *object = json_object();
    for (size_t i = 0; i < writer->now.count; i++) {
        const struct ls_tensor_entry *entry = &writer->now.entries[i];
        json_object_set_new(
            object, entry->name,
            json_pack("{s:o}", "saved_offsets", counts(entry->dims, offset_of(writer, i))));
    }
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

void ls_checkpoint_writer_stage(struct ls_checkpoint_writer *writer, struct ls_file_maps **maps)
{
    writer->staged = true;
    writer->maps = maps;
}

void ls_checkpoint_writer_map(struct ls_checkpoint_writer *writer, struct ls_file_maps **maps)
{
    writer->maps = maps;
}

static int tensors_open(struct ls_checkpoint_writer *writer, const char *sharding,
                        struct ls_safetensors_writer **tensors, struct ls_error *error)
{
    const struct ls_metadata metadata[] = {{"DCP_SHARDING_INFO", sharding}, {"DCP_VERSION", "1.0"}};
    char path[PATH_MAX];
    struct ls_atomic_file file;
    int status = ls_path_join(path, writer->temporary, writer->now.name, error);
    if (!status && writer->staged) {
        status = ls_memory_file_open(&file, path, writer->maps, writer->fault, error);
    } else if (!status) {
        if (!writer->maps) /* it goes to a disk */
            ckpt_room_wait();
        ls_atomic_file_reuse(path);
        status = ls_atomic_file_open(&file, path, writer->fault, error);
    }
    if (!status && writer->maps)
        ls_atomic_file_map(&file, writer->maps);
    return status ? status
                  : ckpt_tensors_begin(tensors, &file, writer->now.entries, writer->now.count,
                                       metadata, 2, error);
}

int ls_checkpoint_writer_begin(struct ls_checkpoint_writer *writer, enum ls_checkpoint_part part,
                               const struct ls_tensor_entry *entries,
                               const struct ls_tensor_box *boxes, size_t count,
                               struct ls_safetensors_writer **tensors, struct ls_error *error)
{
    LS_ASSERT(!writer->tensors && count > 0);
    *tensors = NULL;
    writer->now.part = part;
    writer->now.entries = entries;
    writer->now.boxes = boxes;
    writer->now.count = count;
    name_make(writer->now.name, writer->comm ? ls_comm_rank(writer->comm) : 0, (int)part);
    free(writer->now.digests.tensors);
    writer->now.digests.tensors = calloc(count, sizeof *writer->now.digests.tensors);
    char *sharding = sharding_text(writer);
    int status = sharding && writer->now.digests.tensors
                     ? tensors_open(writer, sharding, tensors, error)
                     : ls_no_memory(error, "for the %zu tensors of %s", count, writer->now.name);
    free(sharding);
    if (!status)
        ls_safetensors_writer_hash(*tensors, &writer->now.digests);
    writer->tensors = *tensors;
    return status;
}

/* A tensor of the report; a piece that it has already stays. */
static int tensor_add(json_t *tensors, const char *name, json_t *tensor)
{
    json_t *there = json_object_get(tensors, name);
    if (!there)
        return json_object_set(tensors, name, tensor);
    return json_array_extend(json_object_get(there, "pieces"), json_object_get(tensor, "pieces"));
}

static int piece_report(struct ls_checkpoint_writer *writer, size_t i)
{
    const struct ls_tensor_entry *entry = &writer->now.entries[i];
    const char *name = writer->now.boxes ? writer->now.boxes[i].name : NULL;
    json_t *tensor =
        json_pack("{s:s, s:o, s:[{s:s, s:o, s:o, s:s}]}", "dtype", ls_dtype_name(entry->dtype),
                  "shape", counts(entry->dims, whole_of(writer, i)), "pieces", "file",
                  writer->now.name, "offsets", counts(entry->dims, offset_of(writer, i)), "shape",
                  counts(entry->dims, entry->shape), "xxh3_128", writer->now.digests.tensors[i]);
    int failed = 0;
    if (name && strcmp(name, entry->name))
        failed = json_object_set_new(tensor, "fqn", json_string(entry->name));
    failed |= tensor_add(json_object_get(writer->report, ckpt_part_names[writer->now.part]),
                         name ? name : entry->name, tensor);
    json_decref(tensor);
    return failed;
}

int ls_checkpoint_writer_end(struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    LS_ASSERT(writer->tensors);
    uint64_t size;
    int status = ls_safetensors_writer_finish(writer->tensors, &size, error);
    if (status)
        return status;
    if (writer->staged) {
        struct taken *taken = &writer->taken[writer->taken_count++];
        snprintf(taken->name, sizeof taken->name, "%s", writer->now.name);
        status = ckpt_tensors_take(writer->tensors, &taken->fd, error);
    } else {
        writer->ended[writer->ended_count++] = writer->tensors;
    }
    writer->tensors = NULL;
    if (status)
        return status;
    json_t *file = json_pack("{s:I, s:I, s:s}", "size", (json_int_t)size, "header_bytes",
                             (json_int_t)writer->now.digests.header_bytes, "header_xxh3_128",
                             writer->now.digests.header);
    int failed =
        json_object_set_new(json_object_get(writer->report, "files"), writer->now.name, file);
    for (size_t i = 0; i < writer->now.count; i++)
        failed |= piece_report(writer, i);
    return failed ? ls_no_memory(error, "for the list of what %s holds", writer->now.name) : LS_OK;
}

int ls_checkpoint_writer_sync(struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    int status = LS_OK, count = writer->ended_count;
    writer->ended_count = 0;
    for (int i = 0; i < count; i++)
        if (status)
            ls_safetensors_writer_abort(writer->ended[i]);
        else
            status = ls_safetensors_writer_commit(writer->ended[i], error);
    return status;
}

/* ---- files of another writer ----------------------------------------------------------------- */

int ls_checkpoint_writer_take(struct ls_checkpoint_writer *to,
                              const struct ls_checkpoint_writer *from, struct ls_error *error)
{
    json_t *files = json_object_get(from->report, "files"), *file;
    const char *name;
    char path[PATH_MAX];
    LS_ASSERT(!to->taken_count && !to->tensors && !from->tensors && !from->ended_count);
    json_decref(to->report);
    to->report = json_deep_copy(from->report);
    if (!to->report)
        return ls_no_memory(error, "for the list of this rank's files");
    json_object_foreach(files, name, file)
    {
        struct taken *taken = &to->taken[to->taken_count];
        int status = ls_path_join(path, from->temporary, name, error);
        snprintf(taken->name, sizeof taken->name, "%s", name);
        taken->fd = status ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (status || taken->fd < 0)
            return status ? status : ls_error_errno(error, errno, "%s: cannot open", path);
        to->taken_count++;
    }
    return LS_OK;
}

/* A file that is copied. One in memory is mapped: the disk takes it from there, without a copy. */
struct copied {
    int fd;
    int64_t bytes; /* of the map */
    const unsigned char *map;
    bool kept; /* the map, by the writer's maps */
};

static struct copied copied_open(const struct ls_checkpoint_writer *to, int fd)
{
    struct stat about;
    struct copied kept = {.fd = fd, .kept = to->staged};
    if (to->staged) {
        kept.map = ls_file_maps_memory(to->maps, fd, &kept.bytes);
        return kept;
    }
    bool memory = fcntl(fd, F_GET_SEALS) >= 0 && !fstat(fd, &about) && about.st_size > 0;
    void *map =
        memory ? mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    return map == MAP_FAILED ? (struct copied){.fd = fd}
                             : (struct copied){.fd = fd, .bytes = about.st_size, .map = map};
}

/* *part[*got] = its next bytes, at most COPY_BYTES, maybe in room. 0 or errno. */
static int copied_next(const struct copied *of, int64_t at, unsigned char *room,
                       const unsigned char **part, size_t *got)
{
    *part = of->map ? of->map + at : room;
    if (!of->map)
        return ls_fd_read(of->fd, at, room, COPY_BYTES, got);
    *got = (size_t)ls_min(COPY_BYTES, of->bytes - at);
    return 0;
}

static void copied_close(const struct copied *of)
{
    if (of->map && !of->kept)
        munmap((void *)of->map, (size_t)of->bytes);
}

static int file_copy(const struct ls_checkpoint_writer *to, struct taken *taken,
                     unsigned char *room, struct ls_error *error)
{
    char path[PATH_MAX];
    struct ls_atomic_file file;
    size_t got = COPY_BYTES;
    int failure = 0;
    int status = ls_path_join(path, to->temporary, taken->name, error);
    ckpt_room_wait();
    if (!status)
        status = ls_atomic_file_open(&file, path, to->fault, error);
    if (status)
        return status;
    ls_atomic_file_direct(&file);
    const struct copied from = copied_open(to, taken->fd);
    const unsigned char *part;
    bool stopped = false;
    for (int64_t at = 0; got == COPY_BYTES && !stopped; at += (int64_t)got) {
        failure = copied_next(&from, at, room, &part, &got);
        ls_progress();
        if (failure || ls_atomic_file_write(&file, part, got))
            break;
        stopped = __atomic_load_n(&to->cancelled, __ATOMIC_RELAXED);
    }
    copied_close(&from);
    if (stopped) {
        ls_atomic_file_abort(&file);
        return ls_error_set(error, LS_ESTOPPED, "%s: not finished", to->directory);
    }
    if (failure) {
        status = ls_error_errno(error, failure, "%s: cannot read what is copied to it", path);
        ls_atomic_file_abort(&file);
        return status;
    }
    status = ls_atomic_file_commit(&file, error);
    if (to->staged)
        ls_file_maps_keep(to->maps, taken->fd);
    else
        close(taken->fd); /* its memory is free, if it has no name any more */
    taken->fd = -1;
    return status;
}

int ls_checkpoint_writer_copy(struct ls_checkpoint_writer *to, struct ls_error *error)
{
    unsigned char *room = aligned_alloc(LS_FILE_BLOCK_BYTES, COPY_BYTES);
    int status = room ? LS_OK : ls_no_memory(error, "to copy a checkpoint's files");
    for (int i = 0; i < to->taken_count && !status; i++)
        status = file_copy(to, &to->taken[i], room, error);
    free(room);
    return status;
}

/* ---- what all ranks wrote -------------------------------------------------------------------- */

static int report_merge(struct ls_checkpoint_writer *writer, const char *text, size_t bytes)
{
    json_error_t where;
    json_t *other = ls_json_load(text, bytes, 0, &where);
    int failed = json_object_update(json_object_get(writer->report, "files"),
                                    json_object_get(other, "files"));
    for (int part = 0; part < CKPT_PARTS; part++) {
        json_t *tensors = json_object_get(writer->report, ckpt_part_names[part]), *tensor;
        const char *name;
        json_object_foreach(json_object_get(other, ckpt_part_names[part]), name, tensor) failed |=
            tensor_add(tensors, name, tensor);
    }
    json_decref(other);
    return failed;
}

/* The text of each other rank's report goes to rank 0. room[largest] on rank 0. */
static int reports_exchange(struct ls_checkpoint_writer *writer, const char *mine,
                            const int64_t *lengths, char *room, struct ls_error *error)
{
    int ranks = ls_comm_size(writer->comm), status = LS_OK, failed = 0;
    if (!is_root(writer))
        return ls_send(writer->comm, mine, lengths[ls_comm_rank(writer->comm)], LS_U8, 0, 0, error);
    for (int rank = 1; rank < ranks && !status; rank++) {
        status = ls_recv(writer->comm, room, lengths[rank], LS_U8, rank, 0, error);
        failed |= status ? 0 : report_merge(writer, room, (size_t)lengths[rank]);
    }
    return !status && failed ? ls_no_memory(error, "for the list of all ranks' files") : status;
}

/* Collective. */
static int reports_gather(struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    if (!writer->comm || ls_comm_size(writer->comm) == 1)
        return LS_OK;
    int ranks = ls_comm_size(writer->comm), status = LS_OK;
    char *mine = json_dumps(writer->report, JSON_COMPACT), *room = NULL;
    int64_t *lengths = calloc((size_t)ranks, sizeof *lengths);
    int64_t length = mine ? (int64_t)strlen(mine) : 0, most = 0;
    if (!mine || !lengths)
        status = ls_no_memory(error, "for the list of this rank's files");
    status = agree(writer, status, error);
    if (!status)
        status = ls_all_gather(writer->comm, &length, lengths, 1, LS_I64, error);
    for (int rank = 0; rank < ranks && !status; rank++)
        most = ls_max(most, lengths[rank]);
    if (!status && is_root(writer) && !(room = malloc((size_t)most + 1)))
        status = ls_no_memory(error, "for the list of all ranks' files");
    status = agree(writer, status, error);
    if (!status)
        status = reports_exchange(writer, mine, lengths, room, error);
    free(mine);
    free(room);
    free(lengths);
    return status;
}

/* Who gets a rank's files: of each of the next machines the rank of the same place, round and
 * round. machine[ranks]: the first rank of each one's. */
static int partner_of(const int64_t *machine, int ranks, int rank, int64_t copy)
{
    int place = 0, others = 0, index = 0, mine = 0, members = 0;
    for (int r = 0; r < ranks; r++) {
        place += r < rank && machine[r] == machine[rank];
        mine = r == machine[rank] ? others : mine;
        others += machine[r] == r;
    }
    if (copy >= others)
        return -1;
    int64_t wanted = (mine + copy) % others, first = -1;
    for (int r = 0; r < ranks && first < 0; r++)
        first = machine[r] == r && index++ == wanted ? r : -1;
    for (int r = 0; r < ranks; r++)
        members += machine[r] == first;
    place %= members;
    for (int r = 0; r < ranks; r++)
        if (machine[r] == first && place-- == 0)
            return r;
    return -1;
}

int ls_checkpoint_writer_replicate(struct ls_checkpoint_writer *writer, int64_t copies,
                                   struct ls_error *error)
{
    const json_t *files = json_object_get(writer->report, "files");
    int ranks = writer->comm ? ls_comm_size(writer->comm) : 1;
    int64_t mine[CKPT_PARTS];
    LS_ASSERT(!writer->ended_count);
    size_t most = (size_t)ranks * CKPT_PARTS, count = 0;
    if (ranks == 1 || copies == 0)
        return LS_OK;
    int64_t *sizes = calloc(most, sizeof *sizes), *machine = calloc((size_t)ranks, sizeof *machine);
    char(*names)[64] = calloc(most, sizeof *names);
    copies = ls_min(copies, (int64_t)ranks - 1);
    struct ckpt_move *moves = calloc(most * (size_t)copies, sizeof *moves);
    int status = sizes && machine && names && moves
                     ? LS_OK
                     : ls_no_memory(error, "for the list of all ranks' files");
    for (int part = 0; part < CKPT_PARTS; part++) {
        char name[64];
        name_make(name, ls_comm_rank(writer->comm), part);
        mine[part] = json_integer_value(json_object_get(json_object_get(files, name), "size"));
    }
    status = agree(writer, status, error);
    if (!status)
        status = ls_all_gather(writer->comm, mine, sizes, CKPT_PARTS, LS_I64, error);
    if (!status)
        status = ls_comm_machines(writer->comm, machine, error);
    for (size_t i = 0; i < most && !status; i++) {
        int rank = (int)(i / CKPT_PARTS);
        name_make(names[i], rank, (int)(i % CKPT_PARTS));
        for (int64_t copy = 1; copy <= copies && sizes[i] > 0; copy++) {
            int to = partner_of(machine, ranks, rank, copy);
            if (to >= 0)
                moves[count++] = (struct ckpt_move){names[i], sizes[i], rank, to};
        }
    }
    if (!status)
        status = ckpt_files_move(writer->temporary, writer->comm, moves, count, error);
    free(sizes);
    free(machine);
    free(names);
    free(moves);
    return status;
}

void ls_checkpoint_writer_cancel(struct ls_checkpoint_writer *to)
{
    __atomic_store_n(&to->cancelled, true, __ATOMIC_RELAXED);
}

/* ---- the manifest, and the name -------------------------------------------------------------- */

/* NULL without memory or where a string is not UTF-8. */
static json_t *manifest_object(const struct ls_checkpoint_writer *writer)
{
    const struct ls_checkpoint_state *state = writer->state;
    return json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:b, s:f, s:I, s:I, s:s, s:s, s:s, s:I, s:s, s:s, s:O, "
        "s:O, s:O}",
        "format", CKPT_FORMAT_NAME, "version", ckpt_versions[0].version, "step",
        (json_int_t)state->step, "samples", (json_int_t)state->samples, "tokens",
        (json_int_t)state->tokens, "fresh", state->fresh, "loss_scale", state->loss_scale,
        "loss_scale_good_steps", (json_int_t)state->good_steps, "loss_scale_hysteresis",
        (json_int_t)state->hysteresis, "hash", state->hash, "fingerprint", state->fingerprint,
        "layout", state->layout ? state->layout : "", "start", (json_int_t)state->start,
        "recipe_digest", state->recipe_digest, "recipe", state->recipe, "files",
        json_object_get(writer->report, "files"), ckpt_part_names[0],
        json_object_get(writer->report, ckpt_part_names[0]), ckpt_part_names[1],
        json_object_get(writer->report, ckpt_part_names[1]));
}

/* Local, on rank 0. *text is to be freed. */
static int manifest_make(const struct ls_checkpoint_writer *writer, char **made,
                         struct ls_error *error)
{
    json_t *object = manifest_object(writer);
    char digest[33], *text = NULL;
    if (object && ckpt_object_digest(object, ckpt_versions[0].digest, digest) &&
        !json_object_set_new(object, ckpt_versions[0].digest, json_string(digest)))
        text = json_dumps(object, JSON_INDENT(1));
    json_decref(object);
    if (!text)
        return ls_error_set(error, LS_EINVAL,
                            "%s: the recipe, fingerprint and hash must be UTF-8 and the loss scale "
                            "finite",
                            writer->directory);
    size_t bytes = strlen(text);
    if (bytes >= CKPT_MANIFEST_BYTES_MAX) {
        free(text);
        return ls_error_set(error, LS_EINVAL,
                            "%s: the list of all pieces takes %zu bytes, at most %d are allowed: "
                            "use fewer ranks or cuts",
                            writer->directory, bytes, CKPT_MANIFEST_BYTES_MAX);
    }
    *made = text;
    return LS_OK;
}

/* Collective. Rank 0's text becomes that of every rank. */
static int manifest_share(const struct ls_checkpoint_writer *writer, char **text,
                          struct ls_error *error)
{
    int64_t length = *text ? (int64_t)strlen(*text) : 0;
    int status = ls_all_reduce_max(writer->comm, &length, error);
    if (!status && !*text && !(*text = calloc((size_t)length + 1, 1)))
        status = ls_no_memory(error, "for the list of all ranks' files");
    status = agree(writer, status, error);
    return status ? status : ls_broadcast(writer->comm, *text, length, LS_U8, 0, error);
}

/* Local, of the rank that leads. */
static int manifest_write(const struct ls_checkpoint_writer *writer, const char *text,
                          struct ls_error *error)
{
    char path[PATH_MAX];
    struct ls_atomic_file file;
    int status = ls_path_join(path, writer->temporary, ckpt_versions[0].file, error);
    if (!status)
        status = ls_atomic_file_open(&file, path, writer->fault, error);
    if (status)
        return status;
    ls_atomic_file_write(&file, text, strlen(text));
    ls_atomic_file_write(&file, "\n", 1);
    return ls_atomic_file_commit(&file, error);
}

int ls_checkpoint_writer_commit(struct ls_checkpoint_writer *writer, int status,
                                struct ls_error *error)
{
    char *text = NULL;
    LS_ASSERT(status || !writer->tensors);
    status = status ? status : ls_checkpoint_writer_sync(writer, error);
    files_abort(writer);
    status = agree(writer, status, error); /* from here on nobody writes tensors */
    status = status ? status : reports_gather(writer, error);
    if (!status && is_root(writer)) {
        const struct ls_checkpoint_state *state = writer->state;
        LS_ASSERT(state->step >= 0 && state->recipe_digest && state->recipe && state->fingerprint &&
                  state->hash);
        status = manifest_make(writer, &text, error);
    }
    if (writer->place == LS_CKPT_EACH_MACHINE && writer->comm) {
        status = agree(writer, status, error);
        status = status ? status : manifest_share(writer, &text, error);
    }
    if (!status && writer->leads) {
        status = manifest_write(writer, text, error);
        if (!status)
            status = ckpt_token_check(writer->run, writer->state->start, error);
        if (!status)
            status = ckpt_give_name(writer->temporary, writer->directory, writer->parent,
                                    writer->fault, error);
    }
    /* What failed, or the checkpoint whose name was taken; else the next write or prune does. */
    if (writer->leads)
        ckpt_remove_directory(writer->temporary, NULL);
    status = agree(writer, status, error);
    free(text);
    ls_checkpoint_writer_drop(writer);
    return status;
}
