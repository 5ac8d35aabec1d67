/* Jobs over stores: what merge, split and detokenize write is what a plain loop over drawn
 * documents gives, in one piece and in parts, for any number of threads; a job that was killed at
 * any call that changes the disk, or found it full, goes on behind the parts that are there. */
#include "../support/extent.h"
#include "data/data_private.h"
#include "support.h"

#include <lockstep/data/corpus_tools.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- drawn stores ---------------------------------------------------------------------------- */

enum { TOKENS_MAX = 1 << 17, DOCUMENTS_MAX = 160, GIANT = 40000 };

/* Documents; of a store, or of what is to come of several. */
struct model {
    int documents;
    int64_t end[DOCUMENTS_MAX + 1]; /* of document i - 1; 0 first */
    int32_t ids[TOKENS_MAX], targets[TOKENS_MAX];
    float weights[TOKENS_MAX];
    bool masked, weighted;
};

static uint64_t draw(uint64_t seed, uint64_t index)
{
    uint64_t key[2] = {seed, index};
    return ls_hash64(key, sizeof key, 11);
}

static void add_token(struct model *model, int32_t id, int32_t target, float weight)
{
    int64_t at = model->end[model->documents + 1]++;
    assert_true(at < TOKENS_MAX);
    model->ids[at] = id;
    model->targets[at] = target;
    model->weights[at] = weight;
}

static void end_document(struct model *model)
{
    model->documents++;
    assert_true(model->documents < DOCUMENTS_MAX);
    model->end[model->documents + 1] = model->end[model->documents];
}

static void add_document(struct model *model, const struct model *from, int document)
{
    model->masked |= from->masked;
    model->weighted |= from->weighted;
    for (int64_t i = from->end[document]; i < from->end[document + 1]; i++)
        add_token(model, from->ids[i], from->targets[i], from->weights[i]);
    end_document(model);
}

/* Up to 40 documents: some empty, most of 1 to 30 tokens, in every third store one of very many. */
static void draw_model(struct model *model, uint64_t seed, bool wide)
{
    static const char alphabet[] = "abc de\"\\\n";
    *model = (struct model){.masked = draw(seed, 1) % 3 == 0, .weighted = draw(seed, 2) % 3 == 0};
    int documents = 1 + (int)(draw(seed, 3) % 40), giant = (int)(draw(seed, 4) % (3 * 40));
    for (int i = 0; i < documents; i++) {
        uint64_t key = draw(seed, 100 + (uint64_t)i);
        int64_t length = i == giant ? GIANT : key % 5 == 0 && i > 0 ? 0 : 1 + (int64_t)(key % 30);
        for (int64_t j = 0; j < length; j++) {
            uint64_t drawn = draw(key, (uint64_t)j);
            bool ends = wide && j + 1 == length && key % 7 < 4;
            add_token(model, ends ? 256 : alphabet[drawn % 9],
                      model->masked && drawn / 9 % 16 < 5 ? -1 : 0,
                      model->weighted ? (float)(drawn / 200 % 3) / 2 : 1);
        }
        end_document(model);
    }
}

/* The .idx and .bin of it; a document of more than 9 tokens is two sequences. */
static void write_index(const struct model *model, const char *name, enum ls_dtype dtype,
                        struct ls_token_list *lengths)
{
    struct ls_error error = {0};
    char path[300];
    unsigned char header[DATA_IDX_HEADER_BYTES] = DATA_IDX_MAGIC;
    uint64_t version = DATA_IDX_VERSION, marks = (uint64_t)model->documents + 1;
    int64_t mark[DOCUMENTS_MAX] = {0}, pointer = 0;
    for (int i = 0; i < model->documents; i++) {
        int64_t length = model->end[i + 1] - model->end[i], head = length > 9 ? 4 : 0;
        assert_ok(data_ids_reserve(lengths, 2, &error), error);
        if (head)
            lengths->ids[lengths->count++] = (int32_t)head;
        if (length)
            lengths->ids[lengths->count++] = (int32_t)(length - head);
        mark[i + 1] = lengths->count;
    }
    uint64_t sequences = (uint64_t)lengths->count;
    memcpy(header + 9, &version, 8);
    header[17] = (unsigned char)data_idx_dtype_code(dtype);
    memcpy(header + 18, &sequences, 8);
    memcpy(header + 26, &marks, 8);
    snprintf(path, sizeof path, "%s/%s.idx", support_folder, name);
    FILE *idx = fopen(path, "w");
    fwrite(header, sizeof header, 1, idx);
    fwrite(lengths->ids, sizeof *lengths->ids, sequences, idx);
    for (uint64_t i = 0; i < sequences; i++) {
        fwrite(&pointer, sizeof pointer, 1, idx);
        pointer += lengths->ids[i] * (int64_t)ls_dtype_bytes(dtype);
    }
    fwrite(mark, sizeof *mark, marks, idx);
    fclose(idx);
    snprintf(path, sizeof path, "%s/%s.bin", support_folder, name);
    FILE *bin = fopen(path, "w");
    for (int64_t i = 0; i < model->end[model->documents]; i++) {
        int64_t id = model->ids[i]; /* little-endian, as all that runs this */
        fwrite(&id, ls_dtype_bytes(dtype), 1, bin);
    }
    fclose(bin);
}

static void write_model(const struct model *model, const char *name, enum ls_dtype dtype)
{
    struct ls_token_list lengths = {0};
    int64_t tokens = model->end[model->documents], counted = 0;
    unsigned char mask[DATA_MASK_HEADER_BYTES + TOKENS_MAX / 8] = {0};
    char path[300];
    write_index(model, name, dtype, &lengths);
    for (int64_t i = 0; i < tokens; i++)
        if (model->targets[i] == 0) {
            mask[DATA_MASK_HEADER_BYTES + i / 8] |= (unsigned char)(1 << i % 8);
            counted++;
        }
    data_mask_header(mask, tokens, counted, lengths.ids, lengths.count);
    snprintf(path, sizeof path, "%s/%s.mask", support_folder, name);
    if (model->masked)
        scratch_write(path, mask, (size_t)(DATA_MASK_HEADER_BYTES + (tokens + 7) / 8));
    snprintf(path, sizeof path, "%s/%s.weights", support_folder, name);
    if (model->weighted)
        scratch_write(path, model->weights, (size_t)tokens * sizeof *model->weights);
    ls_token_list_release(&lengths);
}

static const enum ls_dtype dtypes[] = {LS_U8, LS_U16, LS_I32, LS_I64};

/* NAME.*, of any width. */
static void draw_store(struct model *model, uint64_t seed, const char *name)
{
    enum ls_dtype dtype = dtypes[draw(seed, 5) % 4];
    draw_model(model, seed, dtype != LS_U8);
    write_model(model, name, dtype);
}

/* ---- what is expected ------------------------------------------------------------------------ */

/* The store is documents [first, first + count) of the model, as far as there are. */
static void assert_store(const char *name, const struct model *model, int first, int count)
{
    static int32_t ids[TOKENS_MAX], targets[TOKENS_MAX];
    static float weights[TOKENS_MAX];
    struct ls_error error = {0};
    struct ls_store_check check;
    struct data_stored stored = {0};
    int64_t at, here;
    int status, last = (int)ls_min(first + count, model->documents);
    assert_ok(ls_store_verify(name, NULL, NULL, &check, &error), error);
    assert_ok(data_stored_open_alone(&stored, name, &error), error);
    assert_ok(data_stored_index(&stored, &error), error);
    assert_int_equal(stored.what.tokens.documents, last - first);
    assert_int_equal(stored.what.tokens.sequences, last - first);
    assert_int_equal(stored.file.masked, model->masked);
    assert_int_equal(stored.file.weighted, model->weighted);
    const int64_t begin = model->end[first], tokens = stored.file.tokens;
    assert_int_equal(tokens, model->end[last] - begin);
    for (int i = first; i < last; i++) {
        assert_true(data_stored_next(&stored, &at, &here, &status, &error));
        assert_int_equal(at + here, model->end[i + 1] - begin);
    }
    memset(targets, 0, sizeof targets);
    assert_ok(ls_token_store_read(stored.store, 0, tokens, INT32_MAX, ids, &error), error);
    support_mask(stored.store, 0, tokens, targets);
    assert_ok(ls_token_store_weights(stored.store, 0, tokens, weights, &error), error);
    assert_memory_equal(ids, model->ids + begin, (size_t)tokens * sizeof *ids);
    assert_memory_equal(targets, model->targets + begin, (size_t)tokens * sizeof *targets);
    assert_memory_equal(weights, model->weights + begin, (size_t)tokens * sizeof *weights);
    data_stored_release(&stored);
}

/* In one piece, or in the parts of a folder. */
static void assert_stores(const char *output, const struct model *model, int part_documents)
{
    char path[PATH_MAX + 32];
    bool folder = ls_path_ends(output, "/");
    int count = folder ? part_documents : model->documents, part = 0;
    for (int first = 0; first < model->documents; first += count, part++) {
        snprintf(path, sizeof path, folder ? "%s%06d" : "%s", output, part);
        assert_store(path, model, first, count);
    }
    snprintf(path, sizeof path, "%s%06d.bin", output, part);
    assert_int_equal(access(path, F_OK), -1);
}

static void put(struct ls_text *text, const char *more)
{
    struct ls_error error = {0};
    assert_ok(data_text_put(text, more, strlen(more), &error), error);
}

/* A line of document i, decoded by hand: ids are the bytes, and 256 behind them ends it. */
static void put_line(struct ls_text *text, const struct model *model, int i)
{
    put(text, "{\"text\": \"");
    for (int64_t j = model->end[i]; j < model->end[i + 1]; j++) {
        char plain[2] = {(char)model->ids[j], 0};
        if (model->ids[j] == 256)
            continue;
        put(text, *plain == '\n'   ? "\\n"
                  : *plain == '"'  ? "\\\""
                  : *plain == '\\' ? "\\\\"
                                   : plain);
    }
    put(text, "\"}\n");
}

static void assert_lines(const char *output, const struct model *model, int part_documents)
{
    char path[PATH_MAX + 32];
    bool folder = ls_path_ends(output, "/");
    int count = folder ? part_documents : model->documents, part = 0;
    for (int first = 0; first < model->documents; first += count, part++) {
        struct ls_text expected = {0};
        for (int i = first; i < ls_min(first + count, model->documents); i++)
            put_line(&expected, model, i);
        snprintf(path, sizeof path, folder ? "%s%06d.jsonl" : "%s", output, part);
        support_same(support_read(path), expected);
    }
}

static void drop_folder(const char *name)
{
    assert_true(ls_directory_remove(support_path(name)));
}

/* ---- drawn jobs ------------------------------------------------------------------------------ */

enum { STORES = 20 };
static struct model from[3], all, shares_of[3];

static void detokenize_drawn(int part_documents)
{
    struct ls_error error = {0};
    struct ls_detokenize_report report;
    static const int threads[] = {1, 2, 3, 7};
    for (int t = 0; t < 8; t++) {
        struct ls_store_job job = {.output = support_path(t % 2 ? "lines.jsonl" : "lines/"),
                                   .part_documents = part_documents,
                                   .workers = threads[t / 2]};
        assert_ok(ls_store_detokenize(support_path("m"), "byte", NULL, &job, &report, &error),
                  error);
        assert_int_equal(report.documents, all.documents);
        assert_int_equal(report.tokens, all.end[all.documents]);
        assert_int_equal(report.resumed, 0);
        assert_lines(job.output, &all, part_documents);
        drop_folder("lines");
    }
}

static void split_drawn(uint64_t seed, int part_documents)
{
    struct ls_error error = {0};
    struct ls_store_part parts[LS_PARTS_MAX];
    struct ls_shares shares, reference;
    char name[PATH_MAX];
    assert_ok(ls_shares_parse(draw(seed, 9) % 2 ? "5,1,2" : "3", &shares, &error), error);
    reference = shares;
    for (int i = 0; i < 3; i++)
        shares_of[i] = (struct model){.masked = all.masked, .weighted = all.weighted};
    for (int i = 0; i < all.documents; i++)
        add_document(&shares_of[ls_shares_next(&reference)], &all, i);
    for (int folder = 0; folder < 2; folder++) {
        struct ls_store_job job = {.output = support_path(folder ? "s/" : "s"),
                                   .part_documents = part_documents};
        int status = ls_store_split(support_path("m"), &shares, &job, parts, &error);
        bool empty = shares_of[0].documents == 0 || shares_of[1].documents == 0 ||
                     shares_of[2].documents == 0;
        assert_int_equal(status, empty ? LS_EDATA : LS_OK);
        for (int i = 0; i < 3 && !empty; i++) {
            snprintf(name, sizeof name, folder ? "%s%d/" : "%s_%d", job.output, i);
            assert_stores(name, &shares_of[i], part_documents);
            assert_int_equal(parts[i].documents, shares_of[i].documents);
            assert_int_equal(parts[i].tokens, shares_of[i].end[shares_of[i].documents]);
        }
    }
    drop_folder("s");
}

CASE_WITH(test_drawn_jobs_are_loops_over_documents, support_setup, support_teardown)
{
    struct ls_error error = {0};
    int giants = 0, empty = 0, masked = 0, weighted = 0;
    for (uint64_t seed = 0; seed < STORES; seed++) {
        char names[3][300];
        const char *stores[3];
        int count = 1 + (int)(draw(seed, 0) % 3), part_documents = (int)(draw(seed, 7) % 3 * 4) + 1;
        all = (struct model){0};
        for (int i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "%s/in%d_%d", support_folder, (int)seed, i);
            stores[i] = names[i];
            draw_store(&from[i], 3 * seed + (uint64_t)i, strrchr(names[i], '/') + 1);
            for (int j = 0; j < from[i].documents; j++) {
                int64_t length = from[i].end[j + 1] - from[i].end[j];
                giants += length == GIANT;
                empty += length == 0;
                if (length > 0)
                    add_document(&all, &from[i], j);
            }
            all.masked |= from[i].masked;
            all.weighted |= from[i].weighted;
        }
        masked += all.masked;
        weighted += all.weighted;
        for (int folder = 1; folder >= 0; folder--) {
            struct ls_store_part part;
            struct ls_store_job job = {.output = support_path(folder ? "m/" : "m"),
                                       .part_documents = part_documents};
            assert_ok(ls_store_merge(stores, count, &job, &part, &error), error);
            assert_stores(job.output, &all, part_documents);
            assert_int_equal(part.documents, all.documents);
            assert_int_equal(part.tokens, all.end[all.documents]);
            assert_int_equal(part.resumed, 0);
        }
        drop_folder("m");
        split_drawn(seed, part_documents);
        detokenize_drawn(part_documents);
    }
    print_message("%d giant and %d empty documents, %d of %d masked, %d weighted\n", giants, empty,
                  masked, STORES, weighted);
    assert_true(giants > 1 && empty > 50 && masked > 5 && weighted > 5);
}

/* ---- jobs that are killed -------------------------------------------------------------------- */

enum { PART = 2, EACH = 5 };
enum tool { MERGE, SPLIT, DETOKENIZE, SPLIT_CORPUS, TOOLS };

static int run_tool(enum tool tool, const char *output, int64_t *resumed, struct ls_error *error)
{
    struct ls_store_part parts[LS_PARTS_MAX] = {{0}};
    struct ls_detokenize_report text = {0};
    struct ls_corpus_report corpus = {0};
    struct ls_shares shares;
    int64_t documents[LS_PARTS_MAX];
    char path[300], a[300], b[300], jsonl[300];
    snprintf(path, sizeof path, "%s/%s", support_folder, output);
    snprintf(a, sizeof a, "%s/a", support_folder);
    snprintf(b, sizeof b, "%s/b", support_folder);
    snprintf(jsonl, sizeof jsonl, "%s/in.jsonl", support_folder);
    const char *stores[] = {a, b}, *inputs[] = {jsonl};
    const struct ls_store_job job = {.output = path, .part_documents = PART, .workers = 2};
    const struct ls_corpus_config config = {
        .inputs = inputs, .inputs_count = 1, .output = path, .part_documents = PART, .workers = 1};
    assert_ok(ls_shares_parse("2,1", &shares, error), *error);
    int status = tool == MERGE   ? ls_store_merge(stores, 2, &job, parts, error)
                 : tool == SPLIT ? ls_store_split(a, &shares, &job, parts, error)
                 : tool == DETOKENIZE
                     ? ls_store_detokenize(a, "byte", NULL, &job, &text, error)
                     : ls_corpus_split(&config, &shares, documents, &corpus, error);
    *resumed = parts[0].resumed + parts[1].resumed + text.resumed + corpus.resumed;
    return status;
}

/* Two stores of a few documents, one of them with a mask and weights, and lines. */
static void write_inputs(void)
{
    for (int s = 0; s < 2; s++) {
        from[s] = (struct model){.masked = s, .weighted = s};
        for (int i = 0; i < EACH; i++) {
            for (int j = 0; j < 3 + i; j++)
                add_token(&from[s], 'a' + i, s && j < 2 ? -1 : 0, s ? (float)j : 1);
            end_document(&from[s]);
        }
        write_model(&from[s], s ? "b" : "a", LS_U16);
    }
    FILE *lines = fopen(support_path("in.jsonl"), "w");
    for (int i = 0; i < EACH; i++)
        fprintf(lines, "{\"text\": \"line %d\"}\n", i);
    fclose(lines);
}

static void write_one(void)
{
    from[2] = (struct model){0};
    add_token(&from[2], 'a', 0, 1);
    end_document(&from[2]);
    write_model(&from[2], "one", LS_U16);
}

/* Whether two folders have the same files of the same bytes, those of their folders too. */
static bool same_folder(const char *a, const char *b)
{
    char command[700];
    snprintf(command, sizeof command, "diff -r %s/%s %s/%s >/dev/null", support_folder, a,
             support_folder, b);
    return system(command) == 0;
}

static long count_files(const char *folder, const char *pattern)
{
    char command[400], text[32] = "";
    snprintf(command, sizeof command, "find %s/%s -name '%s' 2>/dev/null | wc -l", support_folder,
             folder, pattern);
    FILE *found = popen(command, "r");
    assert_non_null(fgets(text, sizeof text, found));
    pclose(found);
    return strtol(text, NULL, 10);
}

/* The n-th call that changes the disk ends the process, or it and all after it find the disk full.
 * Whether there was one. */
static bool break_tool(enum tool tool, bool kill, long n)
{
    struct ls_error error = {0};
    int64_t resumed;
    if (!kill) {
        support_fail_output(n, ENOSPC);
        int status = run_tool(tool, "parts/", &resumed, &error);
        support_fail_output(-1, 0);
        assert_true(status == LS_OK || status == LS_ENOSPC);
        assert_int_equal(count_files("parts", "*.tmp-*"), 0);
        return status;
    }
    int status;
    pid_t child = fork();
    if (child == 0) {
        support_fail_output(n, 0);
        _exit(run_tool(tool, "parts/", &resumed, &error));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == 9 : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

CASE_WITH(test_a_job_that_is_killed_goes_on, support_setup, support_teardown)
{
    struct ls_error error = {0};
    int64_t resumed;
    write_inputs();
    for (enum tool tool = 0; tool < TOOLS; tool++) {
        const char *first =
            tool == SPLIT || tool == SPLIT_CORPUS ? "parts/0/000000" : "parts/000000";
        const char *last = tool == MERGE || tool == SPLIT ? ".idx" : ".jsonl";
        char name[64];
        snprintf(name, sizeof name, "%s%s", first, last);
        assert_ok(run_tool(tool, "whole/", &resumed, &error), error);
        assert_int_equal(resumed, 0);
        for (int kill = 0; kill < 2; kill++) {
            long n = 0, went_on = 0;
            for (bool broken = true; broken; n += check_every(17, 17)) {
                struct stat before, after;
                broken = break_tool(tool, kill, n);
                bool there = stat(support_path(name), &before) == 0;
                assert_ok(run_tool(tool, "parts/", &resumed, &error), error);
                if (!same_folder("whole", "parts"))
                    fail_msg("tool %d, %s at call %ld: other files", tool,
                             kill ? "killed" : "disk full", n);
                /* What was there was not made again. */
                assert_int_equal(there, resumed > 0);
                assert_int_equal(stat(support_path(name), &after), 0);
                assert_true(!there || before.st_ino == after.st_ino);
                went_on += there;
                drop_folder("parts");
            }
            assert_in_range(went_on, 1, n - 2);
        }
        drop_folder("whole");
    }
}

/* The twin: a job that takes a part for another one. Its documents are forgotten, and that shows.
 */
CASE_WITH(test_a_part_that_is_forgotten_shows, support_setup, support_teardown)
{
    struct ls_error error = {0};
    int64_t resumed;
    static const char *const suffixes[] = {".bin", ".idx", ".mask", ".weights", ".sums"};
    write_inputs();
    assert_ok(run_tool(MERGE, "whole/", &resumed, &error), error);
    assert_ok(run_tool(MERGE, "parts/", &resumed, &error), error);
    assert_true(same_folder("whole", "parts"));
    for (int i = 0; i < 5; i++) {
        char one[64], two[64];
        snprintf(one, sizeof one, "parts/000001%s", suffixes[i]);
        snprintf(two, sizeof two, "parts/000002%s", suffixes[i]);
        struct ls_text bytes = support_read(support_path(one));
        scratch_write(support_path(two), bytes.bytes, bytes.count);
        ls_text_release(&bytes);
    }
    assert_ok(run_tool(MERGE, "parts/", &resumed, &error), error);
    assert_int_equal(resumed, 2 * EACH);
    assert_false(same_folder("whole", "parts"));
}

CASE_WITH(test_parts_that_do_not_fit_are_refused, support_setup, support_teardown)
{
    struct ls_error error = {0};
    int64_t resumed;
    write_inputs();
    /* A part that is damaged, and one that is too short. */
    write_one();
    assert_ok(run_tool(MERGE, "parts/", &resumed, &error), error);
    struct ls_text whole = support_read(support_path("parts/000001.bin"));
    scratch_write(support_path("parts/000001.bin"), whole.bytes, whole.count - 2);
    assert_int_equal(run_tool(MERGE, "parts/", &resumed, &error), LS_EDATA);
    assert_text_contains(error.text, "/000001.bin has ");
    assert_text_contains(error.text, "Remove this part, and the same command makes it again");
    assert_ok(ls_store_merge((const char *[]){support_path("one")}, 1,
                             &(struct ls_store_job){.output = support_path("parts/000001")},
                             &(struct ls_store_part){0}, &error),
              error);
    assert_int_equal(run_tool(MERGE, "parts/", &resumed, &error), LS_EDATA);
    assert_text_contains(error.text, "000001: 1 documents; expected 2");
    remove(support_path("parts/000001.idx"));
    assert_ok(run_tool(MERGE, "parts/", &resumed, &error), error);
    assert_int_equal(resumed, PART);
    support_same(support_read(support_path("parts/000001.bin")), whole);
    /* Another tool, and other inputs. */
    for (enum tool tool = 0; tool < TOOLS; tool++) {
        drop_folder("parts");
        assert_ok(run_tool(tool, "parts/", &resumed, &error), error);
        scratch_write(support_path("in.jsonl"), "{\"text\": \"x\"}\n{\"text\": \"x\"}\n", 28);
        from[0].ids[0]++;
        add_token(&from[0], 'z', 0, 1);
        end_document(&from[0]);
        write_model(&from[0], "a", LS_U16);
        assert_int_equal(run_tool(tool, "parts/", &resumed, &error), LS_EINVAL);
        assert_text_contains(error.text, "its parts are of another job");
        write_inputs();
    }
    assert_int_equal(run_tool(MERGE, "parts/0/", &resumed, &error), LS_EINVAL);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* An id beyond the vocabulary, late in the store: it is named, and parts before it are whole. */
CASE_WITH(test_damage_is_named, support_setup, support_teardown)
{
    struct ls_error error = {0};
    int64_t resumed;
    char before[2048], names[2048], digest[33], line[64];
    struct ls_tokenizer *tokenizer;
    write_inputs();
    assert_ok(ls_tokenizer_new("byte", &tokenizer, &error), error);
    ls_tokenizer_digest(tokenizer, digest);
    ls_tokenizer_free(tokenizer);
    snprintf(line, sizeof line, "byte\n%s\n", digest);
    scratch_write(support_path("a.tokenizer"), line, strlen(line));
    const int64_t bad = from[0].end[EACH - 1];
    from[0].ids[bad] = 999;
    write_model(&from[0], "a", LS_U16);
    support_list(support_folder, before);
    static const int whole[] = {2, 1, 0};
    for (enum tool tool = 0; tool < SPLIT_CORPUS; tool++) {
        char says[64];
        snprintf(says, sizeof says, "a.bin: token %lld has id 999", (long long)bad);
        assert_int_equal(run_tool(tool, "out", &resumed, &error), LS_EDATA);
        assert_text_contains(error.text, says);
        support_list(support_folder, names);
        assert_string_equal(names, before);
        assert_int_equal(run_tool(tool, "parts/", &resumed, &error), LS_EDATA);
        assert_text_contains(error.text, says);
        assert_int_equal(count_files("parts", "*.tmp-*"), 0);
        assert_int_equal(count_files("parts", "*.idx"), whole[tool]);
        assert_int_equal(count_files("parts", "*.jsonl"), 0); /* one batch has all documents */
        drop_folder("parts");
    }
}

CASE_WITH(test_bad_requests_write_nothing, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_detokenize_report report;
    struct ls_store_part part;
    char before[2048], names[2048];
    write_inputs();
    support_list(support_folder, before);
    const char *stores[] = {support_path("a")};
    struct ls_store_job job = {.output = support_path("m/"), .part_documents = -1};
    assert_int_equal(ls_store_merge(stores, 1, &job, &part, &error), LS_EINVAL);
    job = (struct ls_store_job){.output = support_path("out.jsonl"), .workers = 0};
    assert_int_equal(ls_store_detokenize(stores[0], "byte", NULL, &job, &report, &error),
                     LS_EINVAL);
    assert_text_contains(error.text, "0 workers; expected 1 to 1024");
    /* One document for two parts: no folder is made. */
    write_one();
    struct ls_shares shares;
    assert_ok(ls_shares_parse("2", &shares, &error), error);
    job = (struct ls_store_job){.output = support_path("s/")};
    assert_int_equal(ls_store_split(support_path("one"), &shares, &job, &part, &error), LS_EDATA);
    assert_text_contains(error.text, "no document for part 1 of 2: the store has 1");
    remove(support_path("one.bin"));
    remove(support_path("one.idx"));
    support_list(support_folder, names);
    assert_string_equal(names, before);
}

SUITE_MAIN(NULL, NULL)
