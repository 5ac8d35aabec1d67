/* Writing and reading of flight records, and what is told of a rank that is late. */
#include "comm/flight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- one record ----------------------------------------------------------------------------- */

/* What is copied from a text of any length; the end is what tells files apart. */
static void copy_end(char *to, size_t bytes, const char *from)
{
    size_t length = from ? strlen(from) : 0;
    size_t skip = length < bytes ? 0 : length - bytes + 1;
    if (length)
        memcpy(to, from + skip, length - skip);
}

static void copy_begin(char *to, size_t bytes, const char *from)
{
    size_t length = from ? strnlen(from, bytes - 1) : 0;
    if (length)
        memcpy(to, from, length);
}

uint64_t flight_start(struct ls_comm *comm, const struct comm_call *call, double now_s)
{
    struct flight_entry entry = {.group = comm->id,
                                 .sequence = call->sequence,
                                 .count = call->count,
                                 .started_s = now_s,
                                 .changed_s = now_s,
                                 .op = (int32_t)call->op,
                                 .dtype = (int32_t)call->dtype,
                                 .peer = call->peer,
                                 .tag = call->tag,
                                 .line = call->site.line,
                                 .state = call->blocking ? FLIGHT_WAITING : FLIGHT_PENDING,
                                 .peer_world = comm->world_ranks[call->peer]};
    uint64_t words[FLIGHT_WORDS];
    copy_begin(entry.name, sizeof entry.name, comm->name);
    copy_begin(entry.label, sizeof entry.label, call->label);
    copy_end(entry.file, sizeof entry.file, call->site.file);
    memcpy(words, &entry, sizeof words);
    uint64_t index = atomic_fetch_add_explicit(&comm->record->count, 1, memory_order_relaxed);
    struct flight_slot *slot = &comm->record->slots[index % LS_COMM_FLIGHT];
    atomic_store_explicit(&slot->version, 2 * index + 1, memory_order_relaxed);
    for (int i = 0; i < FLIGHT_WORDS; i++)
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    atomic_store_explicit(&slot->version, 2 * index + 2, memory_order_release);
    ls_progress_set(&comm->record->progress, now_s);
    return index;
}

void flight_progress_begin(struct flight_record *record)
{
    struct ls_progress *other = ls_progress_keep(&record->progress);
    if (other)
        ls_progress_keep(other);
    ls_progress_set(&record->progress, ls_now_s());
}

void flight_progress_end(struct flight_record *record)
{
    struct ls_progress *kept = ls_progress_keep(NULL);
    if (kept != &record->progress)
        ls_progress_keep(kept);
}

enum {
    WORD_CHANGED = offsetof(struct flight_entry, changed_s) / sizeof(uint64_t),
    WORD_STATE = offsetof(struct flight_entry, state) / sizeof(uint64_t),
};
_Static_assert(offsetof(struct flight_entry, line) / sizeof(uint64_t) == (size_t)WORD_STATE,
               "line and state share a word");

void flight_change(struct ls_comm *comm, uint64_t index, enum flight_state state, double now_s)
{
    struct flight_slot *slot = &comm->record->slots[index % LS_COMM_FLIGHT];
    if (state != FLIGHT_FAILED)
        ls_progress_set(&comm->record->progress, now_s);
    if (atomic_load_explicit(&slot->version, memory_order_relaxed) != 2 * index + 2)
        return;
    uint64_t changed, word = atomic_load_explicit(&slot->words[WORD_STATE], memory_order_relaxed);
    int32_t pair[2];
    memcpy(&changed, &now_s, sizeof changed);
    memcpy(pair, &word, sizeof pair);
    pair[1] = (int32_t)state;
    memcpy(&word, pair, sizeof word);
    atomic_store_explicit(&slot->version, 2 * index + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->words[WORD_CHANGED], changed, memory_order_release);
    atomic_store_explicit(&slot->words[WORD_STATE], word, memory_order_release);
    atomic_store_explicit(&slot->version, 2 * index + 2, memory_order_release);
}

bool flight_read(struct flight_record *record, uint64_t index, struct flight_entry *entry)
{
    enum { TRIES = 100 };
    struct flight_slot *slot = &record->slots[index % LS_COMM_FLIGHT];
    uint64_t words[FLIGHT_WORDS], whole = 2 * index + 2;
    for (int i = 0; i < TRIES; i++) {
        if (atomic_load_explicit(&slot->version, memory_order_acquire) != whole)
            continue;
        for (int w = 0; w < FLIGHT_WORDS; w++)
            words[w] = atomic_load_explicit(&slot->words[w], memory_order_acquire);
        if (atomic_load_explicit(&slot->version, memory_order_relaxed) != whole)
            continue;
        memcpy(entry, words, sizeof *entry);
        return true;
    }
    return false;
}

/* Entries [*first, returned) may be read. */
static uint64_t entries_of(struct flight_record *record, uint64_t *first)
{
    uint64_t end = atomic_load_explicit(&record->count, memory_order_acquire);
    *first = end > LS_COMM_FLIGHT ? end - LS_COMM_FLIGHT : 0;
    return end;
}

bool flight_has_started(struct flight_record *record, uint64_t group, const struct comm_call *call)
{
    struct flight_entry entry;
    uint64_t first, end = entries_of(record, &first);
    for (uint64_t i = first; i < end; i++)
        if (flight_read(record, i, &entry) && entry.group == group &&
            comm_is_collective((enum comm_op)entry.op) && entry.sequence >= call->sequence)
            return true;
    return false;
}

/* ---- texts ---------------------------------------------------------------------------------- */

struct entry_text {
    char text[320];
};

static struct entry_text entry_text(const struct flight_entry *entry)
{
    struct comm_call call = {.op = (enum comm_op)entry->op,
                             .dtype = (enum ls_dtype)entry->dtype,
                             .count = entry->count,
                             .peer = entry->peer,
                             .tag = entry->tag,
                             .label = entry->label[0] ? entry->label : NULL,
                             .site = {entry->file, entry->line}};
    struct entry_text out;
    struct comm_text what = comm_describe(&call);
    snprintf(out.text, sizeof out.text, "#%llu of %s: %s", (unsigned long long)entry->sequence,
             entry->name, what.text);
    return out;
}

/* What the system says of a process of this machine; empty where it runs. */
static const char *process_state(int pid)
{
    char path[40], stat[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return access("/proc/self/stat", R_OK) == 0 ? "has ended" : "";
    size_t length = fread(stat, 1, sizeof stat - 1, file);
    fclose(file);
    stat[length] = '\0';
    const char *name_end = strrchr(stat, ')'); /* "pid (name) S ..." */
    char state = name_end && name_end[1] == ' ' ? name_end[2] : 'R';
    if (state == 'T' || state == 't')
        return "is stopped";
    return state == 'Z' || state == 'X' ? "has ended" : "";
}

/* Where a rank is: the operation that it waits in, else the last that it called. False where it has
 * called none. */
static bool where(struct flight_record *record, struct flight_entry *last)
{
    struct flight_entry entry;
    uint64_t first, end = entries_of(record, &first);
    bool found = false, waits = false;
    for (uint64_t i = end; i > first && !waits; i--) {
        if (!flight_read(record, i - 1, &entry))
            continue;
        waits = entry.state == FLIGHT_WAITING;
        if (waits || !found)
            *last = entry;
        found = true;
    }
    return found;
}

static void where_text(struct flight_record *record, double now_s, char *text, size_t bytes)
{
    struct flight_entry last = {0};
    bool found = where(record, &last);
    int pid = atomic_load(&record->pid);
    const char *state = pid == (int)getpid() ? "" : process_state(pid);
    int length = 0;
    if (*state)
        length = snprintf(text, bytes, "its process %d %s; ", pid, state);
    static const char *const did[] = {"it has started", "it waits in", "it has left",
                                      "it has failed in"};
    if (!found)
        snprintf(text + length, bytes - (size_t)length, "it has called nothing yet");
    else
        snprintf(text + length, bytes - (size_t)length, "%s %s, for %.2f s", did[last.state],
                 entry_text(&last).text, now_s - last.changed_s);
}

/* Whether the record shows that its rank belongs to the entry's group and has not come to it. */
static bool is_missing(struct flight_record *record, const struct flight_entry *at)
{
    struct flight_entry entry;
    uint64_t first, end = entries_of(record, &first);
    bool member = false;
    for (uint64_t i = first; i < end; i++) {
        if (!flight_read(record, i, &entry) || entry.group != at->group ||
            !comm_is_collective((enum comm_op)entry.op))
            continue;
        if (entry.sequence >= at->sequence)
            return false;
        member = true;
    }
    return member;
}

/* Whether the system lets the rank's process run. */
static bool runs(struct flight_record *record)
{
    int pid = atomic_load(&record->pid);
    return pid == (int)getpid() || !*process_state(pid);
}

/* The rank of the world that a rank waits for, or did in vain, as far as records tell; else -1. One
 * that is stopped or dead waits for nobody, whatever it was in. */
static int waits_for(const struct flight_board *board, int rank)
{
    struct flight_entry at = {0};
    if (!board->records[rank] || !runs(board->records[rank]) || !where(board->records[rank], &at) ||
        (at.state != FLIGHT_WAITING && at.state != FLIGHT_FAILED))
        return -1;
    if (!comm_is_collective((enum comm_op)at.op))
        return at.peer_world;
    for (int r = 0; r < board->count; r++)
        if (r != rank && board->records[r] && is_missing(board->records[r], &at))
            return r;
    return -1;
}

/* Who is late may itself wait: follows that to its end, or around a circle back to who asks. */
static size_t chain_text(const struct ls_comm *comm, int late, double now_s, char *text,
                         size_t bytes)
{
    int self = comm->world_ranks[comm->rank], rank = late, next = -1;
    char at[400];
    for (int hops = 0; hops < comm->board->count; hops++) {
        next = waits_for(comm->board, rank);
        if (next < 0 || next == self)
            break;
        rank = next;
    }
    if (rank == late || next >= 0 || !comm->board->records[rank])
        return 0;
    where_text(comm->board->records[rank], now_s, at, sizeof at);
    return (size_t)snprintf(text, bytes, "; in the end for rank %d of the world: %s", rank, at);
}

void flight_late_add(struct flight_late *late, const struct ls_comm *comm, int rank)
{
    const int room = (int)(sizeof late->rank / sizeof *late->rank);
    const struct flight_record *record = comm->board->records[comm->world_ranks[rank]];
    double progress_s = record ? ls_progress_s(&record->progress) : 0;
    if (late->count == 0 || progress_s < late->progress_s)
        late->progress_s = progress_s;
    if (late->count < room)
        late->rank[late->count] = rank;
    late->count++;
}

/* ---- patience ------------------------------------------------------------------------------- */

/* Often enough that progress travels along a chain of waits while its end still gets on. */
static double look_interval_s(const struct ls_comm *comm)
{
    static const double longest_s = 0.25;
    return fmin(comm->timeout_s / 8, longest_s);
}

void flight_wait_begin(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    wait->begin_s = now_s;
    wait->look_s = now_s + look_interval_s(comm);
}

void flight_wait_moved(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    flight_wait_begin(wait, comm, now_s);
    ls_progress_set(&comm->record->progress, now_s);
}

bool flight_wait_look(struct flight_wait *wait, const struct ls_comm *comm,
                      const struct flight_late *late, double now_s)
{
    if (late->count && late->progress_s > wait->begin_s) {
        wait->begin_s = late->progress_s;
        if (late->progress_s > ls_progress_s(&comm->record->progress))
            ls_progress_set(&comm->record->progress, late->progress_s);
    }
    wait->look_s = fmin(now_s + look_interval_s(comm), wait->begin_s + comm->timeout_s);
    return now_s - wait->begin_s < comm->timeout_s;
}

void flight_late_text(const struct ls_comm *comm, const struct comm_call *call, double waited_s,
                      const struct flight_late *late, char *text, size_t bytes)
{
    const int room = (int)(sizeof late->rank / sizeof *late->rank);
    double now_s = ls_now_s();
    size_t used =
        (size_t)snprintf(text, bytes, "timed out after %.2f s at #%llu of %s (%d ranks)", waited_s,
                         (unsigned long long)call->sequence, comm->name, comm->size);
    for (int i = 0; i < late->count && i < room; i++) {
        int world_rank = comm->world_ranks[late->rank[i]];
        struct flight_record *record = comm->board->records[world_rank];
        char at[400] = "it is on another machine, of which nothing is known";
        if (record)
            where_text(record, now_s, at, sizeof at);
        used += (size_t)snprintf(text + used, bytes - used, "%s %s: %s",
                                 i                  ? ";"
                                 : late->count == 1 ? "; late is"
                                                    : "; late are",
                                 comm_rank_text(late->rank[i], world_rank).text, at);
        used = (size_t)ls_min((int64_t)used, (int64_t)bytes - 1);
        if (late->count == 1)
            used += chain_text(comm, world_rank, now_s, text + used, bytes - used);
        used = (size_t)ls_min((int64_t)used, (int64_t)bytes - 1);
    }
    if (late->count > room)
        snprintf(text + used, bytes - used, "; and %d more", late->count - room);
}

/* ---- the public face ------------------------------------------------------------------------ */

void ls_comm_set_timeout(struct ls_comm *comm, double seconds)
{
    comm->timeout_s = seconds;
}

void ls_comm_set_name(struct ls_comm *comm, const char *name)
{
    snprintf(comm->name, sizeof comm->name, "%.*s", LS_COMM_NAME_MAX, name);
}

void ls_comm_label(struct ls_comm *comm, const char *label)
{
    comm->label = label;
}

bool ls_comm_dump_claim(struct ls_comm *comm)
{
    return atomic_exchange(comm->board->claimed, 1) == 0;
}

void ls_comm_dump(struct ls_comm *comm, void (*line)(void *user, const char *text), void *user)
{
    static const char *const states[] = {"started", "waiting", "done", "failed"};
    char text[512];
    double now_s = ls_now_s();
    for (int r = 0; r < comm->board->count; r++) {
        struct flight_record *record = comm->board->records[r];
        if (!record) {
            snprintf(text, sizeof text, "rank %d: on another machine", r);
            line(user, text);
            continue;
        }
        struct flight_entry entry;
        uint64_t first, end = entries_of(record, &first);
        snprintf(text, sizeof text, "rank %d: %llu operations, process %d", r,
                 (unsigned long long)end, atomic_load(&record->pid));
        line(user, text);
        for (uint64_t i = first; i < end; i++) {
            if (!flight_read(record, i, &entry))
                continue;
            snprintf(text, sizeof text, "rank %d: %s: %s for %.3f s, started %.3f s ago", r,
                     entry_text(&entry).text, states[entry.state], now_s - entry.changed_s,
                     now_s - entry.started_s);
            line(user, text);
        }
    }
}
