/* Writing and reading of flight records, and what is told of a rank that is late. */
#include "comm/inquire.h"

#include <lockstep/base/lock.h>
#include <lockstep/base/words.h>

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

void flight_write(struct flight_record *record, uint64_t index, const struct flight_entry *entry)
{
    struct flight_slot *slot = &record->slots[index % LS_COMM_FLIGHT];
    uint64_t words[FLIGHT_WORDS];
    memcpy(words, entry, sizeof words);
    atomic_store_explicit(&slot->version, 2 * index + 1, memory_order_relaxed);
    for (int i = 0; i < FLIGHT_WORDS; i++)
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    atomic_store_explicit(&slot->version, 2 * index + 2, memory_order_release);
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
    copy_begin(entry.name, sizeof entry.name, comm->name);
    copy_begin(entry.label, sizeof entry.label, call->label);
    copy_end(entry.file, sizeof entry.file, call->site.file);
    uint64_t index = atomic_fetch_add_explicit(&comm->record->count, 1, memory_order_relaxed);
    flight_write(comm->record, index, &entry);
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

/* What the system says of a process of this machine. */
static enum flight_process process_of(int pid)
{
    char state = ls_process_look(pid).state;
    if (!state)
        return access("/proc/self/stat", R_OK) == 0 ? FLIGHT_ENDED : FLIGHT_RUNS;
    if (state == 'T' || state == 't')
        return FLIGHT_STOPPED;
    return state == 'Z' || state == 'X' ? FLIGHT_ENDED : FLIGHT_RUNS;
}

enum flight_process flight_process_of(struct flight_record *record)
{
    int told = atomic_load(&record->told), pid = atomic_load(&record->pid);
    if (told)
        return (enum flight_process)(told - 1);
    return !pid || pid == (int)getpid() ? FLIGHT_RUNS : process_of(pid);
}

/* Where a rank is: the operation that it waits in, else the last that it called. False if it has
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

static bool picked(const struct flight_picked *out, int count, uint64_t index)
{
    for (int i = 0; i < count; i++)
        if (out[i].index == index)
            return true;
    return false;
}

int flight_pick(struct flight_record *record, uint64_t group, struct flight_picked *out, int room)
{
    uint64_t first, end = entries_of(record, &first);
    int count = 0;
    bool waits = false, member = false;
    for (int all = 0; all < 2; all++)
        for (uint64_t i = end; i > first && count < room; i--) {
            struct flight_picked one = {.index = i - 1};
            if (picked(out, count, i - 1) || !flight_read(record, i - 1, &one.entry))
                continue;
            bool waiting = one.entry.state == FLIGHT_WAITING;
            bool of_group =
                one.entry.group == group && comm_is_collective((enum comm_op)one.entry.op);
            if (!all && !(waiting && !waits) && !(of_group && !member))
                continue;
            waits |= waiting;
            member |= of_group;
            out[count++] = one;
        }
    return count;
}

bool flight_entry_valid(struct flight_entry *entry, int world)
{
    entry->name[sizeof entry->name - 1] = '\0';
    entry->label[sizeof entry->label - 1] = '\0';
    entry->file[sizeof entry->file - 1] = '\0';
    return entry->op >= COMM_ALL_REDUCE && entry->op <= COMM_RECV && entry->dtype >= 0 &&
           entry->dtype <= LS_U64 && entry->state >= FLIGHT_PENDING &&
           entry->state <= FLIGHT_FAILED && entry->peer_world >= 0 && entry->peer_world < world;
}

static void where_add(struct flight_record *record, double now_s, char *text, size_t bytes)
{
    struct flight_entry last = {0};
    bool found = where(record, &last);
    enum flight_process process = flight_process_of(record);
    if (process != FLIGHT_RUNS)
        ls_string_add(text, bytes, "", "its process %d %s; ", atomic_load(&record->pid),
                      process == FLIGHT_STOPPED ? "is stopped" : "has ended");
    static const char *const did[] = {"it has started", "it waits in", "it has left",
                                      "it has failed in"};
    if (!found)
        ls_string_add(text, bytes, "", "it has called nothing yet");
    else
        ls_string_add(text, bytes, "", "%s %s, for %.2f s", did[last.state], entry_text(&last).text,
                      now_s - last.changed_s);
}

/* Behind the text: how far a rank is that reads a checkpoint, or how far it came. */
static void reading_text(const struct flight_record *record, double now_s, char *text, size_t bytes)
{
    uint64_t read;
    double since_s = ls_progress_reading(&record->progress, &read), took_s = now_s - since_s;
    if (since_s > 0 && took_s > 0)
        ls_string_add(text, bytes, "; ", "it reads a checkpoint, %s so far in %.2f s, %s a second",
                      ls_bytes((double)read).text, took_s, ls_bytes((double)read / took_s).text);
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

int flight_waits_for(const struct flight_board *board, int rank, struct flight_entry *at)
{
    struct flight_record *record = board->records[rank];
    if (!record || flight_process_of(record) != FLIGHT_RUNS || !where(record, at) ||
        (at->state != FLIGHT_WAITING && at->state != FLIGHT_FAILED))
        return -1;
    if (!comm_is_collective((enum comm_op)at->op))
        return at->peer_world;
    if (atomic_load(&record->told))
        return atomic_load(&record->awaits) - 1;
    for (int r = 0; r < board->count; r++)
        if (r != rank && board->records[r] && is_missing(board->records[r], at))
            return r;
    return -1;
}

struct host_text {
    char text[64];
};

/* " on <host>" if there are several. */
static struct host_text host_text(const struct flight_board *board, int rank)
{
    struct host_text out = {""};
    if (board->inquirer)
        snprintf(out.text, sizeof out.text, " on %s", inquire_host(board->inquirer, rank));
    return out;
}

/* Where a rank of any machine is. */
static void rank_text(const struct ls_comm *comm, int rank, double now_s, char *text, size_t bytes)
{
    struct flight_record *record = comm->board->records[rank];
    double silence_s =
        comm->board->inquirer ? inquire_silence_s(comm->board->inquirer, rank, now_s) : 0;
    text[0] = '\0';
    if (!record) {
        snprintf(text, bytes, "it shares no memory with this rank and was not asked where it is");
        return;
    }
    bool heard = atomic_load(&record->pid) != 0;
    if (silence_s > comm->timeout_s / 4) {
        snprintf(text, bytes,
                 "neither it nor its machine has answered for %.2f s: stopped, ended, or cut off%s",
                 silence_s, heard ? "; before that " : "");
        if (!heard)
            return;
    }
    if (!heard) {
        snprintf(text, bytes, "it shares no memory with this rank and has not answered yet");
        return;
    }
    where_add(record, now_s, text, bytes);
    reading_text(record, now_s, text, bytes);
}

/* Who is late may itself wait: follows that to its end, or around a circle back to who asks. */
static void chain_add(const struct ls_comm *comm, int late, double now_s, char *text, size_t bytes)
{
    int self = comm->world_ranks[comm->rank], rank = late, next = -1;
    char at[400];
    for (int hops = 0; hops < comm->board->count; hops++) {
        struct flight_entry at_end = {0};
        next = flight_waits_for(comm->board, rank, &at_end);
        if (next < 0 || next == self)
            break;
        rank = next;
    }
    if (rank == late || next >= 0 || !comm->board->records[rank])
        return;
    rank_text(comm, rank, now_s, at, sizeof at);
    ls_string_add(text, bytes, "; ", "in the end for rank %d of the world%s: %s", rank,
                  host_text(comm->board, rank).text, at);
}

/* Does nothing for ranks of this machine. */
static void ask(const struct ls_comm *comm, int world_rank, uint64_t group)
{
    static const double interval_s_max = 1;
    if (comm->board->inquirer)
        inquire_ask(comm->board->inquirer, world_rank, group,
                    fmin(flight_limit_s(comm) / 8, interval_s_max));
}

void flight_late_add(struct flight_late *late, const struct ls_comm *comm, int rank)
{
    const int room = (int)(sizeof late->rank / sizeof *late->rank);
    int world_rank = comm->world_ranks[rank];
    ask(comm, world_rank, comm->id);
    const struct flight_record *record = comm->board->records[world_rank];
    double progress_s = record ? ls_progress_s(&record->progress) : 0;
    if (record && (!late->known || progress_s < late->progress_s))
        late->progress_s = progress_s;
    late->known |= record != NULL;
    if (late->count < room)
        late->rank[late->count] = rank;
    late->count++;
}

/* ---- patience ------------------------------------------------------------------------------- */

/* Whom the late one waits for, and so on, as far as is known: asks those of other machines. */
static void chain_ask(const struct ls_comm *comm, int rank)
{
    int self = comm->world_ranks[comm->rank];
    for (int hops = 0; hops < comm->board->count; hops++) {
        struct flight_entry at = {0};
        rank = flight_waits_for(comm->board, rank, &at);
        if (rank < 0 || rank == self)
            return;
        ask(comm, rank, at.group);
    }
}

/* Often enough that progress travels along a chain of waits while its end still gets on. */
static double look_interval_s(const struct ls_comm *comm)
{
    static const double longest_s = 0.25;
    return fmin(flight_limit_s(comm) / 8, longest_s);
}

void flight_wait_begin(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    static const double first_s_max = 2;
    wait->begin_s = wait->seen_s = now_s;
    wait->look_s = now_s + fmin(flight_limit_s(comm) / 4, first_s_max);
}

void flight_wait_seen(struct flight_wait *wait, double now_s)
{
    static const double turn_s_max = 0.02;
    wait->begin_s += fmax(now_s - wait->seen_s - turn_s_max, 0);
    wait->seen_s = now_s;
}

void flight_wait_moved(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    flight_wait_begin(wait, comm, now_s);
    ls_progress_set(&comm->record->progress, now_s);
}

bool flight_wait_look(struct flight_wait *wait, const struct ls_comm *comm,
                      const struct flight_late *late, double now_s)
{
    wait->begin_s += fmax(now_s - fmax(wait->look_s, wait->seen_s) - look_interval_s(comm), 0);
    if (comm->board->inquirer && late->count)
        chain_ask(comm, comm->world_ranks[late->rank[0]]);
    if (late->count && late->progress_s > wait->begin_s) {
        wait->begin_s = late->progress_s;
        if (late->progress_s > ls_progress_s(&comm->record->progress))
            ls_progress_set(&comm->record->progress, late->progress_s);
    }
    const double limit_s = flight_limit_s(comm);
    wait->look_s = fmin(now_s + look_interval_s(comm), wait->begin_s + limit_s);
    return now_s - wait->begin_s < limit_s;
}

void flight_late_text(const struct ls_comm *comm, const struct comm_call *call, double waited_s,
                      const struct flight_late *late, char *text, size_t bytes)
{
    const int room = (int)(sizeof late->rank / sizeof *late->rank);
    double now_s = ls_now_s();
    snprintf(text, bytes, "timed out after %.2f s at #%llu of %s (%d ranks)", waited_s,
             (unsigned long long)call->sequence, comm->name, comm->size);
    for (int i = 0; i < late->count && i < room; i++) {
        int world_rank = comm->world_ranks[late->rank[i]];
        char at[400];
        rank_text(comm, world_rank, now_s, at, sizeof at);
        const char *first = late->count == 1 ? "; late is" : "; late are";
        ls_string_add(text, bytes, i ? ";" : first, " %s%s: %s",
                      comm_rank_text(late->rank[i], world_rank).text,
                      host_text(comm->board, world_rank).text, at);
        if (late->count == 1)
            chain_add(comm, world_rank, now_s, text, bytes);
    }
    if (late->count > room)
        ls_string_add(text, bytes, "; ", "and %d more", late->count - room);
}

enum ls_error_cause flight_late_cause(const struct flight_late *late)
{
    return late->count == 1 ? LS_CAUSE_LATE_ONE : LS_CAUSE_LATE;
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

bool flight_ended(const struct ls_comm *comm, int rank)
{
    struct flight_record *record = comm->board->records[comm->world_ranks[rank]];
    return record && flight_process_of(record) == FLIGHT_ENDED;
}

int ls_comm_lost(const struct ls_comm *comm, int first, int count)
{
    int lost = -1, named = -1;
    for (int r = first; r < first + count && comm->board; r++) {
        if (!flight_ended(comm, r))
            continue;
        int left = atomic_load(&comm->board->records[comm->world_ranks[r]]->left);
        if (!left)
            return r;
        lost = lost < 0 ? r : lost;
        named = named < 0 ? left - 1 : named;
    }
    for (int r = first; r < first + count && named >= 0; r++)
        if (comm->world_ranks[r] == named)
            return r;
    return lost;
}

void ls_comm_leave(struct ls_comm *comm, int lost)
{
    if (comm->record)
        atomic_store(&comm->record->left, 1 + comm->world_ranks[lost]);
}

void ls_comm_label(struct ls_comm *comm, const char *label)
{
    comm->label = label;
}

bool ls_comm_dump_claim(struct ls_comm *comm)
{
    return atomic_exchange(comm->board->claimed, 1) == 0;
}

void ls_comm_dump(struct ls_comm *comm, FILE *file)
{
    static const char *const states[] = {"started", "waiting", "done", "failed"};
    double now_s = ls_now_s();
    for (int r = 0; r < comm->board->count; r++) {
        struct flight_record *record = comm->board->records[r];
        if (!record) {
            fprintf(file, "rank %d%s: shares no memory\n", r, host_text(comm->board, r).text);
            continue;
        }
        struct flight_entry entry;
        uint64_t first, end = entries_of(record, &first);
        fprintf(file, "rank %d: %llu operations, process %d%s\n", r, (unsigned long long)end,
                atomic_load(&record->pid), host_text(comm->board, r).text);
        for (uint64_t i = first; i < end; i++)
            if (flight_read(record, i, &entry))
                fprintf(file, "rank %d: %s: %s for %.3f s, started %.3f s ago\n", r,
                        entry_text(&entry).text, states[entry.state], now_s - entry.changed_s,
                        now_s - entry.started_s);
    }
}
