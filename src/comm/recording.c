/* What a rank did, as a list; and the transport of a rank that is alone. */
#include "comm/flight.h"

#include <lockstep/comm/recording.h>

#include <stdlib.h>
#include <string.h>

enum { ROOM_MIN = 256 };

/* ---- the list -------------------------------------------------------------------------------- */

void ls_recording_init(struct ls_recording *recording)
{
    *recording = (struct ls_recording){0};
}

void ls_recording_release(struct ls_recording *recording)
{
    for (int64_t i = 0; i < recording->texts_room; i++)
        free(recording->texts[i]);
    free(recording->texts);
    free(recording->list);
    free(recording->done);
    free(recording->transfers);
    free(recording->works);
    free(recording->works_table);
    free(recording->works_after);
    *recording = (struct ls_recording){0};
}

void ls_comm_set_recording(struct ls_comm *comm, struct ls_recording *recording, int group)
{
    comm->recording_group = group;
    comm->recording = comm->size > 1 ? recording : NULL;
}

static char **text_place(char **texts, int64_t room, const char *text)
{
    uint64_t at = ls_hash64(text, strlen(text), 0) & (uint64_t)(room - 1);
    while (texts[at] && strcmp(texts[at], text) != 0)
        at = (at + 1) & (uint64_t)(room - 1);
    return &texts[at];
}

static bool texts_grow(struct ls_recording *recording)
{
    int64_t room = ls_max(2 * recording->texts_room, ROOM_MIN);
    char **texts = calloc((size_t)room, sizeof *texts);
    if (!texts)
        return false;
    for (int64_t i = 0; i < recording->texts_room; i++)
        if (recording->texts[i])
            *text_place(texts, room, recording->texts[i]) = recording->texts[i];
    free(recording->texts);
    recording->texts = texts;
    recording->texts_room = room;
    return true;
}

/* The recording's own copy of text, one for equal texts; NULL where there is no memory. */
static const char *text_keep(struct ls_recording *recording, const char *text)
{
    if (2 * recording->texts_count >= recording->texts_room && !texts_grow(recording))
        return NULL;
    char **place = text_place(recording->texts, recording->texts_room, text);
    if (!*place) {
        *place = strdup(text);
        recording->texts_count += *place != NULL;
    }
    return *place;
}

int comm_record(struct ls_comm *comm, const struct comm_call *call, int64_t *number,
                struct ls_error *error)
{
    struct ls_recording *recording = comm->recording;
    bool message = !comm_is_collective(call->op);
    const char *label = call->label ? text_keep(recording, call->label) : NULL;
    *number = recording->count;
    if ((call->label && !label) || !ls_list_grow(&recording->list, recording->count,
                                                 &recording->room, sizeof *recording->list))
        return ls_error_set(error, LS_ENOMEM, "no memory to record %s", comm_describe(call).text);
    recording->list[recording->count++] = (struct ls_recorded){
        .group = comm->recording_group,
        .operation = comm_op_name(call->op),
        .kind = comm_kind_of(call),
        .dtype = call->op == COMM_REDUCE_SCATTER_BF16 ? LS_BF16 : call->dtype,
        .count = call->count,
        .receive = call->op == COMM_RECV,
        .peer = message || call->op == COMM_BROADCAST ? call->peer : -1,
        .tag = call->tag,
        .label = label,
        .site = call->site,
        .until = call->blocking ? recording->count : LS_RECORDED_PENDING,
        .started_at = recording->clock++,
        .waited_at = LS_RECORDED_PENDING,
    };
    if (call->blocking)
        recording->list[*number].waited_at = recording->clock++;
    return LS_OK;
}

void comm_record_wait(struct ls_comm *comm, int64_t number)
{
    if (number < 0)
        return;
    struct ls_recorded *waited = &comm->recording->list[number];
    waited->until = comm->recording->count;
    waited->waited_at = comm->recording->clock++;
}

/* ---- works ----------------------------------------------------------------------------------- */

static bool work_is(const struct ls_work *a, const struct ls_work *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->m == b->m && a->n == b->n &&
           a->k == b->k && a->flops == b->flops && a->bytes == b->bytes;
}

static int32_t *work_place(const struct ls_recording *recording, const struct ls_work *work)
{
    const int64_t key[] = {work->kind, work->dtype, work->m,
                           work->n,    work->k,     (int64_t)work->bytes};
    uint64_t room = (uint64_t)recording->works_room, at = ls_hash64(key, sizeof key, 0);
    for (;; at++) {
        int32_t *place = &recording->works_table[at & (room - 1)];
        if (*place == 0 || work_is(&recording->works[*place - 1], work))
            return place;
    }
}

static bool works_grow(struct ls_recording *recording)
{
    int32_t room = (int32_t)ls_max(2 * recording->works_room, ROOM_MIN);
    struct ls_work *works = realloc(recording->works, (size_t)room * sizeof *works);
    if (works)
        recording->works = works;
    int32_t *after = realloc(recording->works_after, (size_t)room * sizeof *after);
    if (after)
        recording->works_after = after;
    int32_t *table = calloc((size_t)room, sizeof *table);
    if (!works || !after || !table) {
        free(table);
        return false;
    }
    free(recording->works_table);
    recording->works_table = table;
    recording->works_room = room;
    for (int32_t i = 0; i < recording->works_count; i++)
        *work_place(recording, &works[i]) = i + 1;
    return true;
}

/* The index of a work, which is new or not. Works come in the order in which they came before: that
 * is tried first. */
static int32_t work_index(struct ls_recording *recording, const struct ls_work *work)
{
    int32_t last = recording->works_last, *after = last ? &recording->works_after[last - 1] : NULL;
    if (after && *after && work_is(&recording->works[*after - 1], work))
        return (recording->works_last = *after) - 1;
    int32_t *place = work_place(recording, work);
    if (*place == 0) {
        recording->works_after[recording->works_count] = 0;
        recording->works[recording->works_count++] = *work;
        *place = recording->works_count;
    }
    if (after)
        *after = *place;
    return (recording->works_last = *place) - 1;
}

static void work_note(void *user, const struct ls_command *command, const struct ls_work *work,
                      enum ls_work_pass pass)
{
    struct ls_recording *recording = user;
    if ((2 * recording->works_count >= recording->works_room && !works_grow(recording)) ||
        !ls_list_grow(&recording->done, recording->done_count, &recording->done_room,
                      sizeof *recording->done) ||
        (recording->commands && !ls_command_list_add(recording->commands, command))) {
        recording->incomplete = true;
        return;
    }
    recording->done[recording->done_count++] = (struct ls_recorded_work){
        .work = work_index(recording, work), .pass = pass, .at = recording->clock++};
}

struct ls_ops_watch ls_recording_watch(struct ls_recording *recording)
{
    return (struct ls_ops_watch){.begin = work_note, .user = recording};
}

static int64_t transfer_note(void *user, enum ls_tier_kind kind, bool writes, size_t bytes)
{
    struct ls_recording *recording = user;
    if (!ls_list_grow(&recording->transfers, recording->transfers_count, &recording->transfers_room,
                      sizeof *recording->transfers)) {
        recording->incomplete = true;
        return -1;
    }
    recording->transfers[recording->transfers_count] =
        (struct ls_recorded_transfer){kind, writes, bytes, recording->clock++, LS_RECORDED_PENDING};
    return recording->transfers_count++;
}

static void transfer_wait_note(void *user, int64_t number)
{
    struct ls_recording *recording = user;
    if (number >= 0)
        recording->transfers[number].waited_at = recording->clock++;
}

struct ls_tier_watch ls_recording_tier_watch(struct ls_recording *recording)
{
    return (struct ls_tier_watch){transfer_note, transfer_wait_note, recording};
}

/* ---- alone ----------------------------------------------------------------------------------- */

struct alone_comm {
    struct ls_comm base;
    int *world_ranks;           /* [n] */
    struct flight_board *board; /* the world's own; NULL in a group */
};

static int alone_start(struct ls_comm *comm, const struct comm_call *call, void **operation,
                       struct ls_error *error)
{
    (void)comm, (void)call, (void)error;
    *operation = NULL;
    return LS_OK;
}

static int alone_wait(struct ls_comm *comm, void *operation, struct ls_error *error)
{
    (void)comm, (void)operation, (void)error;
    return LS_OK;
}

static bool alone_test(struct ls_comm *comm, void *operation)
{
    (void)comm, (void)operation;
    return false;
}

static void alone_free(struct ls_comm *comm)
{
    struct alone_comm *self = (struct alone_comm *)comm;
    if (self->board) {
        free(self->board->records[0]);
        free(self->board->records);
        free(self->board);
    }
    free(self->world_ranks);
    comm_release(comm);
    free(self);
}

static int alone_split(struct ls_comm *comm, const int *members, int size, int rank,
                       struct ls_comm **out, struct ls_error *error);

static const struct comm_transport alone_transport = {LS_TRANSPORT_ALONE, alone_start, alone_wait,
                                                      alone_test,         alone_split, alone_free};

/* members[size] are ranks of parent, NULL for a new world. */
static int alone_new(const struct ls_comm *parent, const int *members, int size, int rank,
                     struct alone_comm **out, struct ls_error *error)
{
    struct alone_comm *self = calloc(1, sizeof *self);
    *out = NULL;
    if (!self)
        return ls_error_set(error, LS_ENOMEM, "no memory for a communicator");
    int status = comm_init(&self->base, &alone_transport, rank, size, error);
    self->world_ranks = calloc((size_t)size, sizeof *self->world_ranks);
    if (!status && !self->world_ranks)
        status = ls_error_set(error, LS_ENOMEM, "no memory for a group of %d ranks", size);
    if (status) {
        alone_free(&self->base);
        return status;
    }
    for (int i = 0; i < size; i++)
        self->world_ranks[i] = parent ? parent->world_ranks[members[i]] : i;
    self->base.world_ranks = self->world_ranks;
    if (parent) {
        self->base.board = parent->board;
        self->base.record = parent->record;
    }
    *out = self;
    return LS_OK;
}

static int alone_split(struct ls_comm *comm, const int *members, int size, int rank,
                       struct ls_comm **out, struct ls_error *error)
{
    struct alone_comm *self;
    int status = alone_new(comm, members, size, rank, &self, error);
    *out = status ? NULL : &self->base;
    return status;
}

/* A board on which this rank is all there is. */
static struct flight_board *board_new(void)
{
    struct flight_board *board = calloc(1, sizeof *board);
    struct flight_record **records = calloc(1, sizeof *records);
    struct flight_record *record = calloc(1, sizeof *record);
    if (!board || !records || !record) {
        free(record);
        free(records);
        free(board);
        return NULL;
    }
    records[0] = record;
    *board = (struct flight_board){
        .count = 1, .machine_ranks = 1, .records = records, .claimed = &record->claimed};
    return board;
}

int ls_comm_alone_new(int rank, int size, struct ls_comm **out, struct ls_error *error)
{
    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return ls_error_set(error, LS_EINVAL, "rank %d of a world with ranks 0 to %d", rank,
                            size - 1);
    struct alone_comm *self;
    int status = alone_new(NULL, NULL, size, rank, &self, error);
    if (status)
        return status;
    self->base.board = self->board = board_new();
    if (!self->board) {
        alone_free(&self->base);
        return ls_error_set(error, LS_ENOMEM, "no memory for a communicator");
    }
    self->base.record = self->board->records[0];
    *out = &self->base;
    return LS_OK;
}
