/* What a rank submitted, as lists. */
#include <lockstep/plan/recording.h>

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
    free(recording->pending);
    free(recording->works);
    free(recording->works_table);
    free(recording->works_after);
    *recording = (struct ls_recording){0};
}

void ls_recording_group(struct ls_recording *recording, const struct ls_comm *comm, int group)
{
    LS_ASSERT(group >= 0 && group < LS_GROUPS);
    recording->groups[group] = ls_comm_size(comm) > 1 ? comm : NULL;
}

/* -1: of none that is written down. */
static int group_of(const struct ls_recording *recording, const struct ls_comm *comm)
{
    for (int group = 0; group < LS_GROUPS; group++)
        if (recording->groups[group] == comm)
            return group;
    return -1;
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

/* The recording's own copy of text, one for equal texts; NULL if there is no memory. */
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

/* ---- operations and transfers ---------------------------------------------------------------- */

static struct ls_recorded_pending *pending_find(struct ls_recording *recording, const void *of,
                                                uint64_t ticket)
{
    for (int64_t i = recording->pending_count; i-- > 0;)
        if (recording->pending[i].of == of && recording->pending[i].ticket == ticket)
            return &recording->pending[i];
    return NULL;
}

/* The number of what was started, which is now waited for; -1: none that was written down. */
static int64_t pending_take(struct ls_recording *recording, const void *of, uint64_t ticket)
{
    struct ls_recorded_pending *pending = pending_find(recording, of, ticket);
    if (!pending)
        return -1;
    int64_t number = pending->number;
    *pending = recording->pending[--recording->pending_count];
    return number;
}

static bool pending_add(struct ls_recording *recording, const void *of, uint64_t ticket,
                        int64_t number)
{
    if (!ls_list_grow(&recording->pending, recording->pending_count, &recording->pending_room,
                      sizeof *recording->pending))
        return false;
    recording->pending[recording->pending_count++] =
        (struct ls_recorded_pending){of, ticket, number};
    return true;
}

static void operation_note(struct ls_recording *recording, const struct ls_comm_told *told)
{
    int group = group_of(recording, told->request.comm);
    int64_t number = recording->count;
    if (group < 0)
        return;
    if (told->waits) {
        number = pending_take(recording, told->request.comm, told->request.ticket);
        if (number < 0)
            return;
        recording->list[number].until = recording->count;
        recording->list[number].waited_at = recording->clock++;
        return;
    }
    const char *label = told->operation.label ? text_keep(recording, told->operation.label) : NULL;
    const uint64_t ticket = told->request.ticket;
    if ((told->operation.label && !label) ||
        !ls_list_grow(&recording->list, number, &recording->room, sizeof *recording->list) ||
        (ticket && !pending_add(recording, told->request.comm, ticket, number))) {
        recording->incomplete = true;
        return;
    }
    recording->list[recording->count++] = (struct ls_recorded){
        .group = group,
        .operation = told->operation,
        .until = ticket ? LS_RECORDED_PENDING : recording->count,
        .started_at = recording->clock++,
        .waited_at = LS_RECORDED_PENDING,
    };
    recording->list[number].operation.label = label;
    if (!ticket)
        recording->list[number].waited_at = recording->clock++;
}

static void transfer_note(struct ls_recording *recording, const struct ls_tier_told *told)
{
    const struct ls_transfer transfer = told->transfer;
    int64_t number = recording->transfers_count;
    if (told->waits) {
        number = pending_take(recording, transfer.tier, transfer.ticket);
        if (number >= 0)
            recording->transfers[number].waited_at = recording->clock++;
        return;
    }
    if (!ls_list_grow(&recording->transfers, number, &recording->transfers_room,
                      sizeof *recording->transfers) ||
        !pending_add(recording, transfer.tier, transfer.ticket, number)) {
        recording->incomplete = true;
        return;
    }
    recording->transfers[recording->transfers_count++] = (struct ls_recorded_transfer){
        told->kind, told->writes, told->bytes, recording->clock++, LS_RECORDED_PENDING};
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

static void work_note(struct ls_recording *recording, const struct ls_command *command,
                      const struct ls_work *work, enum ls_work_pass pass)
{
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

/* ---- a queue's commands ---------------------------------------------------------------------- */

static void note(void *user, const struct ls_queue *queue, const struct ls_command *command)
{
    struct ls_recording *recording = user;
    struct ls_comm_told operation;
    struct ls_tier_told transfer;
    struct ls_work work;
    if (recording->wants_works && ls_command_work(command, &work))
        work_note(recording, command, &work, queue->pass);
    else if (ls_comm_command(command, &operation))
        operation_note(recording, &operation);
    else if (recording->wants_works && ls_tier_command(command, &transfer))
        transfer_note(recording, &transfer);
}

struct ls_queue_watch ls_recording_watch(struct ls_recording *recording)
{
    return (struct ls_queue_watch){.begin = note, .user = recording};
}
