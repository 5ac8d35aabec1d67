/* Best-fit packing: which documents share a sample (lockstep/data/pack.h).
 *
 * Documents are read again and again from the index, in order, and known by their number. Only what
 * does not fill a sample by itself is packed: a document's rest of 1 to T - 1 targets. Sizes are
 * small numbers, so rests are sorted by counting, and open samples are kept in a list for each room
 * that is left; a tree of bits over the rooms finds the least one that suffices. */
#include "data/data_private.h"

#include <lockstep/base/temporary.h>
#include <lockstep/data/pack.h>

#include <stdlib.h>

#define NONE UINT32_MAX

enum { LEVELS_MAX = 4, STEP_DOCUMENTS = 1 << 16 };
_Static_assert(LS_PACK_SEQUENCE_MAX <= 1 << 6 * LEVELS_MAX, "rooms fit the tree of bits");

struct packer {
    struct data_stored stored;
    struct ls_pack_report *report;
    const volatile int *stop;
    int64_t tokens;   /* T */
    const char *pass; /* over the documents: what is done with them */
    int64_t full;     /* samples of one piece of T targets */
    int64_t rests, bins;
    int64_t *rests_of;    /* [T]: rests of each size */
    uint32_t *by_size;    /* [rests]: their numbers by descending size, then ascending */
    uint32_t *bin_of;     /* [rests]: the sample that each goes to */
    uint32_t *bin_next;   /* [bins]: the next in the list of its room */
    uint32_t *bin_pieces; /* [bins] */
    int64_t next_room, pieces_room;
    uint32_t *head;             /* [T]: the list of each room; NONE: it is empty */
    uint64_t *bits[LEVELS_MAX]; /* level 0: a bit for each list; above: for each word below */
};

/* ---- documents ------------------------------------------------------------------------------- */

static int pack_step(const struct packer *p, int64_t done, int64_t all, struct ls_error *error)
{
    if (done % STEP_DOCUMENTS != 1)
        return LS_OK;
    return data_tool_step(p->stop, "; nothing was written", p->pass, done, all, error);
}

static void pass_begin(struct packer *p, const char *pass)
{
    p->stored.walk = (struct data_idx_walk){0};
    p->pass = pass;
}

/* The next document with a target: its first token, and its targets. */
static bool document_next(struct packer *p, int64_t *first, int64_t *targets, int *status,
                          struct ls_error *error)
{
    const struct data_tokens *what = &p->stored.what.tokens;
    const int64_t all = what->documents ? what->documents : what->sequences;
    while (data_stored_next(&p->stored, first, targets, status, error)) {
        *status = pack_step(p, p->stored.walk.document, all, error);
        if (*status || --*targets > 0)
            return !*status;
    }
    return false;
}

/* One pass: what there is to pack, and what other ways make of it. */
static int documents_count(struct packer *p, struct ls_error *error)
{
    struct ls_pack_report *report = p->report;
    int64_t first, targets, used = p->tokens;
    int status = LS_OK;
    pass_begin(p, "documents counted");
    for (; document_next(p, &first, &targets, &status, error); report->documents++) {
        const int64_t full = targets / p->tokens, rest = targets % p->tokens;
        p->full += full;
        p->rests += rest > 0;
        p->rests_of[rest]++;
        report->targets += targets;
        report->cut += targets > p->tokens;
        report->stream_cut += first / p->tokens != (first + targets - 1) / p->tokens;
        bool fits = full == 0 && used + rest <= p->tokens;
        report->order_samples += fits ? 0 : full + (rest > 0);
        used = fits ? used + rest : rest > 0 ? rest : p->tokens;
    }
    p->rests_of[0] = 0;
    if (status)
        return status;
    if (report->documents == 0)
        return ls_error_set(error, LS_EDATA, "%s: no document has two tokens: nothing to learn",
                            p->stored.file.path);
    if (p->rests >= NONE)
        return ls_error_set(error, LS_ENOTSUP, "%s: %lld documents; at most 2^32 - 2 are packed",
                            p->stored.file.path, (long long)p->rests);
    return LS_OK;
}

/* by_size: a counting sort. */
static int documents_sort(struct packer *p, struct ls_error *error)
{
    int64_t *place = malloc((size_t)p->tokens * sizeof *place), before = 0, first, targets;
    p->by_size = malloc((size_t)p->rests * sizeof *p->by_size + 1);
    p->bin_of = malloc((size_t)p->rests * sizeof *p->bin_of + 1);
    if (!place || !p->by_size || !p->bin_of) {
        free(place);
        return ls_no_memory(error, "to pack %lld documents", (long long)p->rests);
    }
    for (int64_t size = p->tokens - 1; size > 0; before += p->rests_of[size--])
        place[size] = before;
    int status = LS_OK;
    pass_begin(p, "documents sorted");
    for (uint32_t number = 0; document_next(p, &first, &targets, &status, error);)
        if (targets % p->tokens > 0)
            p->by_size[place[targets % p->tokens]++] = number++;
    free(place);
    return status;
}

/* ---- open samples by their room -------------------------------------------------------------- */

static int rooms_init(struct packer *p, struct ls_error *error)
{
    int64_t words = p->tokens;
    p->head = malloc((size_t)p->tokens * sizeof *p->head);
    bool held = p->head;
    for (int i = 0; i < LEVELS_MAX; i++) {
        words = ls_ceil_div(words, 64);
        p->bits[i] = calloc((size_t)words, sizeof **p->bits);
        held = held && p->bits[i];
    }
    if (!held)
        return ls_no_memory(error, "for sequences of %lld tokens", (long long)p->tokens);
    memset(p->head, 0xff, (size_t)p->tokens * sizeof *p->head);
    return LS_OK;
}

static void room_mark(struct packer *p, int64_t room, bool has)
{
    for (int i = 0; i < LEVELS_MAX; i++, room /= 64) {
        uint64_t *word = &p->bits[i][room / 64], bit = (uint64_t)1 << room % 64;
        *word = has ? *word | bit : *word & ~bit;
        if (!has && *word)
            return;
    }
}

/* The least room of `room` or more that a sample has; -1: none has. */
static int64_t room_find(const struct packer *p, int64_t room)
{
    int64_t bits = p->tokens;
    int level = 0;
    uint64_t word = 0;
    while (level < LEVELS_MAX && room < bits) {
        word = p->bits[level][room / 64] & ~(uint64_t)0 << room % 64;
        if (word)
            break;
        level++;
        room = room / 64 + 1;
        bits = ls_ceil_div(bits, 64);
    }
    if (!word)
        return -1;
    room = room / 64 * 64 + __builtin_ctzll(word);
    for (; level > 0; level--)
        room = room * 64 + __builtin_ctzll(p->bits[level - 1][room]);
    return room;
}

/* ---- best fit -------------------------------------------------------------------------------- */

static int bin_new(struct packer *p, uint32_t *bin, struct ls_error *error)
{
    if (!ls_list_grow(&p->bin_next, p->bins, &p->next_room, sizeof *p->bin_next) ||
        !ls_list_grow(&p->bin_pieces, p->bins, &p->pieces_room, sizeof *p->bin_pieces))
        return ls_no_memory(error, "for %lld samples", (long long)p->bins);
    *bin = (uint32_t)p->bins++;
    p->bin_pieces[*bin] = 0;
    return LS_OK;
}

/* The sample that a rest goes to, which keeps its room without it. */
static int bin_take(struct packer *p, int64_t size, uint32_t *bin, struct ls_error *error)
{
    int64_t room = room_find(p, size);
    int status = LS_OK;
    if (room < 0) {
        room = p->tokens;
        status = bin_new(p, bin, error);
    } else {
        *bin = p->head[room];
        p->head[room] = p->bin_next[*bin];
        if (p->head[room] == NONE)
            room_mark(p, room, false);
    }
    room -= size;
    if (!status && room > 0) {
        p->bin_next[*bin] = p->head[room];
        p->head[room] = *bin;
        room_mark(p, room, true);
    }
    return status;
}

static int rests_pack(struct packer *p, struct ls_error *error)
{
    int status = rooms_init(p, error);
    p->pass = "documents packed";
    int64_t at = 0;
    for (int64_t size = p->tokens - 1; size > 0 && !status; size--)
        for (int64_t end = at + p->rests_of[size]; at < end && !status; at++) {
            uint32_t bin = NONE;
            status = bin_take(p, size, &bin, error);
            if (status)
                break;
            p->bin_of[p->by_size[at]] = bin;
            p->bin_pieces[bin]++;
            status = pack_step(p, at + 1, p->rests, error);
        }
    free(p->by_size);
    free(p->bin_next);
    p->by_size = p->bin_next = NULL;
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* A file under way: its samples, its pieces, and where the next piece of each packed sample goes.
 */
struct output {
    unsigned char *file;
    struct data_pack pack;
    int64_t samples, pieces; /* begun so far */
    int64_t *bin_at;         /* [bins]; -1: not begun */
};

static void sample_begin(struct output *o, int64_t pieces)
{
    memcpy(o->file + DATA_PACK_HEADER_BYTES + 8 * o->samples++, &o->pieces, 8);
    o->pieces += pieces;
}

static void piece_put(struct output *o, int64_t at, int64_t first, int64_t count)
{
    const int32_t short_count = (int32_t)count;
    memcpy(o->file + (o->pack.firsts - o->file) + 8 * at, &first, 8);
    memcpy(o->file + (o->pack.counts - o->file) + 4 * at, &short_count, 4);
}

/* Samples are numbered by their first document. */
static int samples_put(struct packer *p, struct output *o, struct ls_error *error)
{
    int64_t first, targets, number = 0;
    int status = LS_OK;
    pass_begin(p, "documents written");
    while (document_next(p, &first, &targets, &status, error)) {
        for (; targets >= p->tokens; targets -= p->tokens, first += p->tokens) {
            sample_begin(o, 1);
            piece_put(o, o->pieces - 1, first, p->tokens);
        }
        if (targets == 0)
            continue;
        const uint32_t bin = p->bin_of[number++];
        if (o->bin_at[bin] < 0) {
            o->bin_at[bin] = o->pieces;
            sample_begin(o, p->bin_pieces[bin]);
        }
        piece_put(o, o->bin_at[bin]++, first, targets);
    }
    if (!status)
        sample_begin(o, 0);
    return status;
}

static int output_init(struct packer *p, struct output *o, struct ls_error *error)
{
    const int64_t samples = p->full + p->bins, pieces = p->full + p->rests;
    *o = (struct output){.file = malloc(data_pack_bytes(samples, pieces)),
                         .bin_at = malloc((size_t)p->bins * sizeof *o->bin_at + 1)};
    if (!o->file || !o->bin_at)
        return ls_no_memory(error, "for the packing of %lld documents",
                            (long long)p->report->documents);
    memset(o->bin_at, 0xff, (size_t)p->bins * sizeof *o->bin_at);
    memcpy(o->file + 32, &samples, 8);
    memcpy(o->file + 40, &pieces, 8);
    data_pack_of(o->file, &o->pack);
    return LS_OK;
}

static int file_write(const struct packer *p, const struct output *o, struct ls_error *error)
{
    struct ls_atomic_file file;
    char path[PATH_MAX];
    int status = data_store_path(path, p->stored.file.path, ".pack", error);
    if (!status)
        status = ls_atomic_file_open(&file, path, NULL, error);
    if (status)
        return status;
    ls_atomic_file_hold(&file);
    ls_atomic_file_write(&file, o->file, data_pack_bytes(o->pack.samples, o->pack.pieces));
    return ls_atomic_file_commit(&file, error); /* it tells of a failure to write */
}

static int output_write(struct packer *p, struct ls_error *error)
{
    struct output o;
    int status = output_init(p, &o, error);
    if (!status)
        status = samples_put(p, &o, error);
    if (!status) {
        p->report->samples = o.pack.samples;
        data_pack_header(o.file, p->tokens, o.pack.samples, o.pack.pieces, &p->stored.ends);
        status = file_write(p, &o, error);
    }
    free(o.file);
    free(o.bin_at);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int packer_init(struct packer *p, const char *store, struct ls_error *error)
{
    if (p->tokens < 1 || p->tokens > LS_PACK_SEQUENCE_MAX)
        return ls_error_set(error, LS_EINVAL, "a sequence of %lld tokens; expected 1 to %d",
                            (long long)p->tokens, LS_PACK_SEQUENCE_MAX);
    p->rests_of = calloc((size_t)p->tokens, sizeof *p->rests_of);
    if (!p->rests_of)
        return ls_no_memory(error, "for sequences of %lld tokens", (long long)p->tokens);
    int status = data_stored_open_alone(&p->stored, store, error);
    return status ? status : data_stored_index(&p->stored, error);
}

static void packer_release(struct packer *p)
{
    data_stored_release(&p->stored);
    free(p->rests_of);
    free(p->by_size);
    free(p->bin_of);
    free(p->bin_next);
    free(p->bin_pieces);
    free(p->head);
    for (int i = 0; i < LEVELS_MAX; i++)
        free(p->bits[i]);
}

int ls_store_pack(const char *store, int64_t sequence_tokens, const volatile int *stop,
                  struct ls_pack_report *report, struct ls_error *error)
{
    struct packer packer = {.report = report, .stop = stop, .tokens = sequence_tokens};
    *report = (struct ls_pack_report){0};
    int status = packer_init(&packer, store, error);
    if (!status)
        status = documents_count(&packer, error);
    if (!status)
        status = documents_sort(&packer, error);
    if (!status)
        status = rests_pack(&packer, error);
    if (!status)
        status = output_write(&packer, error);
    packer_release(&packer);
    return status;
}
