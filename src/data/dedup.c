/* Documents that repeat an earlier one, exactly or nearly, by MinHash and bands. The public header
 * has definitions and sources. */
#include "data/minhash.h"

#include <lockstep/base/json.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* What a thread makes of a document; the signature lies behind. */
struct judged {
    struct ls_digest digest;
    bool empty;
};
/* The documents that were kept. */
struct kept {
    struct data_near_index exact; /* their digests, as signatures of one band */
    struct data_near_index near;
    struct data_origin {
        int64_t number;
        struct data_place place;
    } * origins;       /* [exact.count] */
    uint32_t *near_to; /* [near.count]: entries of the near index, as documents */
    int64_t origins_room, near_room;
};
enum { DIGEST_WORDS = sizeof(struct ls_digest) / sizeof(uint32_t) };
struct dedup {
    struct ls_dedup_report *report;
    double near; /* 0: exact only */
    int equal;   /* values that make it near */
    struct data_minhash minhash;
    struct ls_text *scratch; /* by worker */
    struct data_corpus *corpus;
    struct data_corpus_output output;
    struct kept kept;
};

/* ---- on any thread --------------------------------------------------------------------------- */

static int judge(void *user, int worker, struct data_document *document, struct ls_error *error)
{
    struct dedup *dedup = user;
    struct judged *judged = document->result;
    XXH128_hash_t hash = XXH3_128bits(document->text.bytes, document->text.count);
    *judged = (struct judged){.digest = {hash.low64, hash.high64}};
    if (dedup->near == 0)
        return LS_OK;
    return data_minhash_sign(&dedup->minhash, &document->text, &dedup->scratch[worker],
                             (uint32_t *)(void *)(judged + 1), &judged->empty, error);
}

/* ---- the documents that were kept ------------------------------------------------------------ */

static const uint32_t *digest_words(const struct judged *judged)
{
    return (const uint32_t *)(const void *)&judged->digest;
}

static const uint32_t *signature(const struct judged *judged)
{
    return (const uint32_t *)(const void *)(judged + 1);
}

static int kept_add(struct kept *kept, const struct data_document *document,
                    const struct judged *judged, bool near, struct ls_error *error)
{
    const int64_t count = kept->exact.count, entry = kept->near.count;
    int status = data_kept_admit(count, error);
    if (status)
        return status;
    if (!ls_list_grow(&kept->origins, count, &kept->origins_room, sizeof *kept->origins) ||
        (near && !ls_list_grow(&kept->near_to, entry, &kept->near_room, sizeof *kept->near_to)))
        return ls_no_memory(error, "for %lld documents", (long long)count);
    kept->origins[count] = (struct data_origin){document->number, document->place};
    if (near) {
        kept->near_to[entry] = (uint32_t)count;
        status = data_near_add(&kept->near, signature(judged), error);
    }
    return status ? status : data_near_add(&kept->exact, digest_words(judged), error);
}

static int64_t kept_bytes(const struct kept *kept)
{
    return data_near_bytes(&kept->exact) + data_near_bytes(&kept->near) +
           kept->origins_room * (int64_t)sizeof *kept->origins +
           kept->near_room * (int64_t)sizeof *kept->near_to;
}

static void kept_release(struct kept *kept)
{
    data_near_release(&kept->exact);
    data_near_release(&kept->near);
    free(kept->origins);
    free(kept->near_to);
}

/* ---- in the order of the input --------------------------------------------------------------- */

/* A removed document, and the one that it repeats; values of its hashes are equal, of all if -1. */
struct repeat {
    const struct dedup *dedup;
    const struct data_origin *of;
    int values;
};

static int write_repeat(const void *context, FILE *file, struct ls_error *error)
{
    const struct repeat *repeat = context;
    char place[PATH_MAX + 32];
    (void)error;
    data_place_text(repeat->dedup->corpus, repeat->of->place, place);
    fprintf(file, ", \"kept_number\": %lld, \"kept\": ", (long long)repeat->of->number);
    ls_json_string(file, place, strlen(place));
    if (repeat->values < 0)
        fputs(", \"exact\": true}\n", file);
    else
        fprintf(file, ", \"similarity\": %.4f}\n",
                (double)repeat->values / repeat->dedup->minhash.hashes);
    return LS_OK;
}

static int remove_document(struct dedup *dedup, const struct data_document *document, int64_t of,
                           int values, struct ls_error *error)
{
    const struct repeat repeat = {dedup, &dedup->kept.origins[of], values};
    *(values < 0 ? &dedup->report->exact : &dedup->report->near) += 1;
    dedup->report->corpus.removed++;
    return data_corpus_output_put(&dedup->output, document, write_repeat, &repeat, error);
}

static int decide(void *user, const struct data_document *document, struct ls_error *error)
{
    struct dedup *dedup = user;
    struct kept *kept = &dedup->kept;
    const struct judged *judged = document->result;
    const bool near = dedup->near > 0 && !judged->empty;
    int values = 0;
    dedup->report->corpus.documents++;
    int64_t same = data_near_find(&kept->exact, digest_words(judged), DIGEST_WORDS, &values);
    if (same >= 0)
        return remove_document(dedup, document, same, -1, error);
    int64_t entry =
        near ? data_near_find(&kept->near, signature(judged), dedup->equal, &values) : -1;
    if (entry >= 0)
        return remove_document(dedup, document, kept->near_to[entry], values, error);
    int status = kept_add(kept, document, judged, near, error);
    return status ? status : data_corpus_output_put(&dedup->output, document, NULL, NULL, error);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int configure(struct dedup *dedup, const struct ls_dedup_config *config, int workers,
                     struct ls_error *error)
{
    int hashes = config->hashes ? config->hashes : 128;
    int shingle = config->shingle ? config->shingle : 5;
    if (!(config->near >= 0 && config->near <= 1))
        return ls_error_set(error, LS_EINVAL, "a similarity of %g; expected above 0, up to 1",
                            config->near);
    if (hashes < 16 || hashes > DATA_HASHES_MAX || shingle < 1 || shingle > DATA_SHINGLE_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "%d hashes of shingles of %d words; expected 16 to %d, and 1 to %d",
                            hashes, shingle, DATA_HASHES_MAX, DATA_SHINGLE_MAX);
    dedup->near = config->near;
    dedup->equal = (int)ceil(config->near * hashes - 1e-9);
    data_minhash_init(&dedup->minhash, hashes, shingle);
    struct ls_dedup_report *report = dedup->report;
    report->hashes = config->near > 0 ? hashes : 0;
    if (config->near > 0)
        ls_dedup_bands(config->near, hashes, &report->bands, &report->rows);
    data_near_init(&dedup->kept.exact, DIGEST_WORDS, 1, DIGEST_WORDS);
    data_near_init(&dedup->kept.near, hashes, report->bands, report->rows);
    dedup->scratch = calloc((size_t)ls_max(workers, 1), sizeof *dedup->scratch);
    return dedup->scratch ? LS_OK : ls_no_memory(error, "to find repeats");
}

static int run(struct dedup *dedup, const struct ls_corpus_config *config, struct ls_error *error)
{
    /* What was kept of parts that are there must be known: they are judged again, not written. */
    const struct data_documents documents = {
        .corpus = dedup->corpus,
        .workers = config->workers,
        .stop = config->stop,
        .result_bytes = sizeof(struct judged) +
                        (dedup->near > 0 ? (size_t)dedup->minhash.hashes * sizeof(uint32_t) : 0),
        .work = judge,
        .take = decide,
        .user = dedup};
    int status = data_documents_run(&documents, error);
    return status ? status : data_corpus_output_commit(&dedup->output, error);
}

int ls_corpus_dedup(const struct ls_corpus_config *config, const struct ls_dedup_config *wanted,
                    struct ls_dedup_report *report, struct ls_error *error)
{
    struct dedup dedup = {.report = report};
    struct data_reading reading = {
        .config = config, .skipped = &report->corpus.skipped, .keep_lines = true};
    char job[128];
    *report = (struct ls_dedup_report){0};
    int status = data_reading_open(&reading, &dedup.corpus, error);
    if (!status)
        status = configure(&dedup, wanted, config->workers, error);
    snprintf(job, sizeof job, "dedup: near %.17g, %d hashes, shingles of %d words", wanted->near,
             report->hashes, dedup.minhash.shingle);
    const struct data_inputs inputs = data_corpus_inputs(dedup.corpus);
    if (!status)
        status = data_corpus_output_open(&dedup.output, config, &inputs, wanted->list, job,
                                         &report->corpus.resumed, error);
    if (!status)
        status = run(&dedup, config, error);
    report->corpus.resumed = ls_min(report->corpus.resumed, report->corpus.documents);
    report->memory_bytes = kept_bytes(&dedup.kept);
    data_corpus_output_release(&dedup.output);
    for (int i = 0; dedup.scratch && i < config->workers; i++)
        ls_text_release(&dedup.scratch[i]);
    free(dedup.scratch);
    kept_release(&dedup.kept);
    data_corpus_close(dedup.corpus);
    return status;
}
