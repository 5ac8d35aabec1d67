/* Faults of files: drawn bits that flipped, and drawn lengths that files were cut to, over all
 * files of a checkpoint, and of a snapshot in memory. Ranks that resume find each, name the file,
 * and take the checkpoint before.
 *
 *     test_file_faults [COUNT [SEED]]     COUNT flips and COUNT / 10 cuts (make faults)
 *
 * Nothing else is allowed but what leaves the manifest the same JSON value: such as the case of a
 * digit in \u00e9, or the newline at its end.
 */
#include "../support/checkpoints.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "unit.h"

#include <lockstep/base/json.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 6, STEPS = 3, FILES_MAX = 2 * 8 + 1, ROOM = 700, CUTS = 10 };

static int64_t flips;
static uint64_t seed = 1;

/* One rank, and ways to cut the state. */
static const char *const layouts[][KEYS_MAX] = {
    {NULL},
    {"parallel.dp=2"},
    {"parallel.dp_shard=3", "parallel.zero=1"},
    {"parallel.tp=2"},
    {"parallel.dp_shard=2", "parallel.zero=3", "parallel.persist=16"},
    {"parallel.pp=2", "parallel.tp=2"},
    {"parallel.dp_shard=4", "parallel.zero=2"},
    {"parallel.pp=2", "parallel.tp=2", "parallel.zero=1", "parallel.dp_shard=2"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

struct fault {
    bool cuts;
    int file;
    size_t at;         /* of the byte, or the length that is left */
    unsigned char bit; /* of the byte, as a mask */
};
struct harness {
    char run[600], newest[ROOM];
    char memory[ROOM]; /* the folder that has the newest as a snapshot; "": it is on the disk */
    struct ls_config config;
    char hashes[STEPS][33];
    /* Of the newest checkpoint. */
    int file_count;
    char names[FILES_MAX][256];
    char *bytes[FILES_MAX];
    size_t sizes[FILES_MAX];
    json_t *manifest;
    /* What is tried now. */
    uint64_t first;
    int64_t count;
    char warning[2048]; /* of the skipped checkpoint */
    int warnings;
    int64_t found, harmless;
};

/* ---- ranks ----------------------------------------------------------------------------------- */

struct rank {
    struct seat seat;
    struct unit unit;
    struct ls_arena arena;
};

static int rank_open(struct rank *r, const struct harness *h, struct ls_comm *world,
                     struct ls_error *error)
{
    struct ls_config config = h->config;
    struct ls_arena measure;
    *r = (struct rank){0};
    int status = seat_open(&r->seat, &config, NULL, world, error);
    unit_init(&r->unit, &config, 5, &r->seat);
    ls_arena_measure(&measure);
    if (!status)
        status = ls_state_take(&r->unit.state, &measure, error);
    ls_state_release(&r->unit.state);
    if (!status)
        status = ls_arena_init(&r->arena, measure.used, error);
    if (!status)
        status = ls_state_take(&r->unit.state, &r->arena, error);
    return status ? status : unit_fill(&r->unit, error);
}

static void rank_close(struct rank *r)
{
    ls_state_release(&r->unit.state);
    ls_arena_release(&r->arena);
    seat_close(&r->seat);
}

/* A checkpoint after each step. */
static int save_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct harness *h = user;
    struct rank r;
    int status = rank_open(&r, h, world, error);
    for (int step = 0; step < STEPS && !status; step++) {
        struct ls_digest digest;
        status = unit_step(&r.unit, error);
        if (!status)
            status = ls_state_hash(&r.unit.state, &digest, error);
        if (!status && r.seat.rank == 0)
            ls_digest_hex(&digest, h->hashes[step]);
        if (!status)
            status = ls_state_save(&r.unit.state, &digest, error);
    }
    rank_close(&r);
    return status;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static struct fault draw(const struct harness *h, uint64_t i)
{
    const uint64_t of[] = {seed, i};
    uint64_t key = ls_hash64(of, sizeof of, 0);
    struct fault fault = {.cuts = i % (CUTS + 1) == CUTS};
    fault.file = (int)(key % (uint64_t)h->file_count);
    fault.at = (size_t)((key >> 8 & 0xffffffffffff) % h->sizes[fault.file]);
    fault.bit = (unsigned char)(1u << (key >> 61));
    return fault;
}

static void file_write(const struct harness *h, const struct fault *fault, bool good)
{
    char path[2 * ROOM];
    char *bytes = h->bytes[fault->file];
    size_t size = h->sizes[fault->file];
    snprintf(path, sizeof path, "%s/%s", h->newest, h->names[fault->file]);
    if (!good && !fault->cuts)
        bytes[fault->at] ^= (char)fault->bit;
    scratch_write(path, bytes, good || !fault->cuts ? size : fault->at);
    if (!good && !fault->cuts)
        bytes[fault->at] ^= (char)fault->bit;
}

/* Whether the manifest says the same with it. */
static bool is_harmless(const struct harness *h, const struct fault *fault)
{
    if (strcmp(h->names[fault->file], "manifest.json") != 0)
        return false;
    char path[ROOM + 64];
    size_t size;
    snprintf(path, sizeof path, "%s/manifest.json", h->newest);
    char *text = scratch_read(path, &size);
    json_error_t where;
    json_t *value = ls_json_load(text, size, 0, &where);
    bool same = value && json_equal(value, h->manifest);
    json_decref(value);
    free(text);
    return same;
}

static void warned(void *user, enum ls_log_level level, const char *line)
{
    struct harness *h = user;
    if (level != LS_LOG_WARNING)
        return;
    h->warnings++;
    snprintf(h->warning, sizeof h->warning, "%s", line);
}

/* A snapshot of which a file was cut is not whole: another machine might have that file. */
static bool is_told(const struct harness *h, const char *name)
{
    const char *what = h->memory[0] ? "snapshot" : "damaged checkpoint";
    return strstr(h->warning, "skipping a ") && strstr(h->warning, what) &&
           strstr(h->warning, name);
}

/* What is wrong with how ranks went on after a fault in that file; "" where nothing is. */
static const char *judge(const struct harness *h, int file, bool harmless, int status, int64_t step,
                         const char *hash)
{
    static char text[4096];
    int64_t expected = harmless ? STEPS : STEPS - 1;
    text[0] = '\0';
    if (status)
        snprintf(text, sizeof text, "the ranks ended with code %d", status);
    else if (step != expected || strcmp(hash, h->hashes[expected - 1]) != 0)
        snprintf(text, sizeof text, "step %ld, hash %s; expected %ld, %s", (long)step, hash,
                 (long)expected, h->hashes[expected - 1]);
    else if (h->warnings != !harmless || (!harmless && !is_told(h, h->names[file])))
        snprintf(text, sizeof text, "%d warnings, the last: %.2000s", h->warnings, h->warning);
    return text;
}

/* Collective: resumes. */
static int go_on(struct rank *r, char hash[33], struct ls_error *error)
{
    struct ls_digest digest;
    bool resumed;
    int status = ls_state_resume(&r->unit.state, &resumed, error);
    if (!status && !resumed)
        status = ls_error_set(error, LS_ECKPT, "nothing was resumed from");
    if (!status)
        status = ls_state_hash(&r->unit.state, &digest, error);
    if (!status)
        ls_digest_hex(&digest, hash);
    return status;
}

static int fault_try(struct harness *h, struct rank *r, uint64_t i, struct ls_error *error)
{
    struct ls_comm *world = r->seat.groups[LS_GROUP_WORLD];
    const struct fault fault = draw(h, i);
    bool harmless = false;
    char hash[33];
    h->warnings = r->seat.rank == 0 ? 0 : h->warnings;
    if (r->seat.rank == 0) {
        file_write(h, &fault, false);
        harmless = is_harmless(h, &fault);
    }
    int status = ls_barrier(world, error);
    status = status ? status : go_on(r, hash, error);
    if (r->seat.rank > 0)
        return status;
    file_write(h, &fault, true);
    const char *wrong = judge(h, fault.file, harmless, status, r->unit.state.step, hash);
    h->found += !harmless;
    h->harmless += harmless;
    if (wrong[0])
        return ls_error_set(error, LS_ECKPT, "fault %lu (%s, %s %zu, mask %d): %s: %.300s",
                            (unsigned long)i, h->names[fault.file],
                            fault.cuts ? "cut to" : "bit of byte", fault.at, fault.bit, wrong,
                            status ? error->text : "");
    return LS_OK;
}

static int faults_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct harness *h = user;
    const struct ls_log log = {LS_LOG_WARNING, warned, h};
    struct rank r;
    int status = rank_open(&r, h, world, error);
    snprintf(r.unit.config.train.resume, sizeof r.unit.config.train.resume, "auto");
    r.unit.state.log = &log;
    r.unit.state.snapshots = h->memory[0] ? h->memory : NULL;
    for (int64_t i = 0; i < h->count && !status; i++)
        status = ls_comm_agree(world, fault_try(h, &r, h->first + (uint64_t)i, error), error);
    rank_close(&r);
    return status;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void config_set(struct harness *h, const char *const *keys)
{
    const char *all[KEYS_MAX + 3] = {"train.keep=9", "batch.global=12"};
    for (int i = 0; i < KEYS_MAX && keys[i]; i++)
        all[i + 2] = keys[i];
    h->config = unit_config(all, h->run);
}

static void ranks_run(struct harness *h, int (*body)(struct ls_comm *, void *, struct ls_error *),
                      int code, struct ls_error *error)
{
    int status = ls_world_run((int)ls_config_ranks(&h->config), body, h, error);
    if (status != code)
        fail_msg("%s", error->text);
}

/* What is a checkpoint in one place is a snapshot in the other. */
static void newest_move(struct harness *h)
{
    char to[ROOM], parent[2 * ROOM];
    struct ls_error error = {0};
    snprintf(h->memory, sizeof h->memory, "%s/memory", h->run);
    snprintf(parent, sizeof parent, "%s/checkpoints", h->memory);
    assert_ok(ls_directory_make(parent, NULL, &error), error);
    snprintf(to, sizeof to, "%.650s/step-%08d", parent, STEPS);
    assert_int_equal(rename(h->newest, to), 0);
    memcpy(h->newest, to, sizeof to);
}

static void harness_open(struct harness *h, const char *directory, int index, int writer,
                         bool in_memory)
{
    struct ls_error error = {0};
    char path[2 * ROOM];
    *h = (struct harness){0};
    snprintf(h->run, sizeof h->run, "%s/%d", directory, index);
    snprintf(h->newest, sizeof h->newest, "%s/checkpoints/step-%08d", h->run, STEPS);
    assert_int_equal(ls_directory_make(h->run, NULL, &error), LS_OK);
    config_set(h, layouts[writer]);
    ranks_run(h, save_body, LS_OK, &error);
    if (in_memory)
        newest_move(h);
    DIR *files = opendir(h->newest);
    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files));) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(h->file_count < FILES_MAX);
        snprintf(h->names[h->file_count], sizeof h->names[0], "%s", entry->d_name);
        snprintf(path, sizeof path, "%s/%s", h->newest, entry->d_name);
        h->bytes[h->file_count] = scratch_read(path, &h->sizes[h->file_count]);
        h->file_count++;
    }
    closedir(files);
    snprintf(path, sizeof path, "%s/manifest.json", h->newest);
    h->manifest = json_load_file(path, 0, NULL);
    assert_non_null(h->manifest);
}

static void harness_close(struct harness *h)
{
    for (int i = 0; i < h->file_count; i++)
        free(h->bytes[i]);
    json_decref(h->manifest);
}

CASE_WITH(test_flips_and_cuts, scratch_setup, scratch_teardown)
{
    int pairs = flips < 1000 ? 3 : 2 * LAYOUTS;
    int64_t all = flips + flips / CUTS, found = 0, harmless = 0;
    for (int pair = 0; pair < pairs; pair++) {
        const uint64_t of[] = {seed, (uint64_t)pair};
        uint64_t key = ls_hash64(of, sizeof of, 1);
        struct harness h;
        struct ls_error error = {0};
        int writer = (int)((key + (uint64_t)pair) % LAYOUTS), reader = (int)((key >> 32) % LAYOUTS);
        harness_open(&h, *state, pair, writer, pair % 2);
        config_set(&h, layouts[reader]);
        h.first = (uint64_t)(all * pair / pairs);
        h.count = all * (pair + 1) / pairs - (int64_t)h.first;
        ranks_run(&h, faults_body, LS_OK, &error);
        found += h.found;
        harmless += h.harmless;
        harness_close(&h);
    }
    printf("seed %lu: %ld faults in files, of which %ld were found and named, and %ld left the "
           "manifest what it was; %d pairs of layouts\n",
           (unsigned long)seed, (long)all, (long)found, (long)harmless, pairs);
    assert_int_equal(found + harmless, all);
    assert_true(harmless * 100 <= all);
}

/* ---- the twin -------------------------------------------------------------------------------- */

struct forged {
    char is[33], was[33];
};

/* The digest of altered bytes takes the place of that of the good ones: to the reader they are as
 * they were, as if it did not verify them. */
static void digest_forge(json_t *manifest, void *user)
{
    const struct forged *forged = user;
    const char *name;
    json_t *tensor, *piece;
    size_t i;
    int forgeries = 0;
    json_object_foreach(json_object_get(manifest, "optimizer"), name, tensor)
    {
        json_array_foreach(json_object_get(tensor, "pieces"), i, piece)
        {
            if (strcmp(json_string_value(json_object_get(piece, "xxh3_128")), forged->was) != 0)
                continue;
            json_object_set_new(piece, "xxh3_128", json_string(forged->is));
            forgeries++;
        }
    }
    assert_int_equal(forgeries, 1);
}

static int twin_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct harness *h = user;
    struct rank r;
    char hash[33] = "";
    int status = rank_open(&r, h, world, error);
    if (status)
        return status;
    snprintf(r.unit.config.train.resume, sizeof r.unit.config.train.resume, "auto");
    r.unit.state.snapshots = h->memory[0] ? h->memory : NULL;
    status = go_on(&r, hash, error);
    if (r.seat.rank == 0 && !judge(h, 0, false, status, r.unit.state.step, hash)[0])
        h->found++;
    rank_close(&r);
    return LS_OK;
}

/* A reader that does not verify one part takes a state that nobody saved, and the judge says so. */
static void check_unverified(const char *directory, int index, bool in_memory)
{
    struct harness h;
    struct ls_error error = {0};
    struct fault fault = {.bit = 4};
    struct forged forged = {{0}, {0}};
    harness_open(&h, directory, index, 1, in_memory);
    while (!strstr(h.names[fault.file], "shard-00001-optimizer"))
        fault.file++;
    fault.at = h.sizes[fault.file] - 2;
    file_write(&h, &fault, false);
    struct ls_checkpoint *checkpoint = checkpoint_open(h.newest);
    assert_int_equal(ls_checkpoint_verify(checkpoint, LS_CKPT_OPTIMIZER, &error), LS_ECKPT);
    ls_checkpoint_close(checkpoint);
    const char *digest = strstr(error.text, "the digest is ");
    assert_non_null(digest);
    assert_int_equal(
        sscanf(digest, "the digest is %32[0-9a-f], expected %32[0-9a-f]", forged.is, forged.was),
        2);
    manifest_edit(h.newest, digest_forge, &forged);
    ranks_run(&h, twin_body, LS_OK, &error);
    assert_int_equal(h.found, 0);
    harness_close(&h);
}

CASE_WITH(test_unverified_part, scratch_setup, scratch_teardown)
{
    check_unverified(*state, 98, false);
    check_unverified(*state, 99, true);
}

int main(int argc, char **argv)
{
    flips = argc > 1 ? strtoll(argv[1], NULL, 10) : 10000 / check_every(200, 50);
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    return suite_run(NULL, NULL);
}
