/* lockstep/data/corpus_tools.h - cleaner corpora: what is done with text before it becomes tokens.
 *
 *   ls_corpus_dedup    drops documents that repeat an earlier one, exactly or nearly
 *   ls_corpus_filter   drops documents by rules of quality
 *   ls_corpus_split    cuts a corpus into parts, document by document
 *
 * Inputs are those of ls_data_prepare (lockstep/data.h): files and folders, JSONL, .gz and .zst,
 * and pipes. The output is JSONL: the lines of JSONL that remain, byte for byte with all their
 * members, and {"KEY": text} of a file that is one document (bytes that are not UTF-8 become
 * U+FFFD). Documents keep their order.
 *
 * Everything streams, in one pass. Threads judge documents, and the calling thread takes them in
 * the order of the input, so the output does not depend on their number.
 *
 * The output is one of
 *   a file     under a temporary name until all is whole (lockstep/base/file.h); "-" is standard
 *              output. After a failure or a stop nothing is left
 *   a folder   if the path ends in "/" or is one: part i, NNNNNN.jsonl, has what remains of
 *              documents [i * part_documents, (i + 1) * part_documents) of the input, and
 *              NNNNNN.removed.jsonl which of them were removed, and why. A part gets its name when
 *              it is whole. job.txt says what is made here: the same call with the same inputs goes
 *              on behind the parts that are there (dedup judges their documents again, because it
 *              must know them; filter passes over them); any other call is LS_EINVAL,
 *              and so is an input that is no regular file if there are parts
 *
 * All functions are Local. They tell their progress (lockstep/base/meter.h). */
#ifndef LOCKSTEP_DATA_CORPUS_TOOLS_H
#define LOCKSTEP_DATA_CORPUS_TOOLS_H

#include <lockstep/base.h>
#include <lockstep/data/store_tools.h>

LS_C_BEGIN

struct ls_corpus_config {
    const char *const *inputs;
    int inputs_count;
    const char *output;
    const char *json_key;   /* NULL: "text" */
    int64_t part_documents; /* of a folder's parts; 0: LS_PART_DOCUMENTS */
    int workers;            /* at least 1 */
    /* As of struct ls_prepare_config, but without a list of their own. */
    bool skip_bad;
    void (*skipped)(void *user, const char *why);
    void *user;
    const volatile int *stop;
};
struct ls_corpus_report {
    int64_t documents, removed; /* read; and of these */
    int64_t skipped;            /* bad records, not among them */
    int64_t resumed;            /* documents of parts that were there */
};

/* ---- dedup ----------------------------------------------------------------------------------- */

/* Exact: two documents are equal if their texts are, by XXH3-128. Near (near > 0): if the estimate
 * of the Jaccard similarity of their shingles is at least `near`.
 *
 * A shingle is a run of `shingle` words, in small letters and without punctuation; a shorter
 * document is one shingle. The estimate is MinHash's (Broder, "On the resemblance and containment
 * of documents", 1997): the share of `hashes` hash functions whose least value over the shingles is
 * equal in both; its standard deviation is sqrt(s (1 - s) / hashes). Two documents are compared if
 * all values of one of `bands` bands of `rows` values are equal (locality-sensitive hashing): with
 * probability 1 - (1 - s^rows)^bands at similarity s.
 *
 * Documents are judged in the order of the input. One that is near a document that was kept is
 * removed; of several, the report names the earliest. A removed document removes none: if A is near
 * B, and B near C, but A not near C, then A and C are kept.
 *
 * Memory: 48 to 96 bytes for each document that is kept; near, 4 hashes + 20 bands more. */
struct ls_dedup_config {
    double near;      /* 0 < near <= 1; 0: exact only */
    int hashes;       /* 0: 128; 16 to 1024 */
    int shingle;      /* words; 0: 5; 1 to 32 */
    const char *list; /* a file, for an output that is one: each removed document, the one that was
                         kept, and the estimate, as JSON lines; NULL: none */
};
struct ls_dedup_report {
    struct ls_corpus_report corpus;
    int64_t exact, near; /* removed */
    int hashes, bands, rows;
    int64_t memory_bytes; /* of what is known of the documents kept, at the end */
};
int ls_corpus_dedup(const struct ls_corpus_config *config, const struct ls_dedup_config *dedup,
                    struct ls_dedup_report *report, struct ls_error *error);
/* bands and rows for `hashes` values: the most rows with which a pair at similarity `near` is
 * compared with a probability of 0.95 or more. */
void ls_dedup_bands(double near, int hashes, int *bands, int *rows);
/* The probability that a pair at this similarity is compared. */
double ls_dedup_probability(double similarity, int bands, int rows);

/* ---- filter ---------------------------------------------------------------------------------- */

/* A rule: a measure of a document, and a bound. */
struct ls_filter_rule {
    const char *name;  /* "words-min" */
    const char *group; /* those it is in, with spaces: any, gopher, repetition, c4, length */
    bool most;         /* the bound is the most that is allowed; otherwise the least */
    double bound;      /* by default */
    const char *help;
};
/* All of them; *count of them. */
const struct ls_filter_rule *ls_filter_rules(int *count);
enum { LS_FILTER_RULES_MAX = 40 };
struct ls_filter {
    bool used[LS_FILTER_RULES_MAX]; /* by rule */
    double bound[LS_FILTER_RULES_MAX];
};
/* text: names of groups and of rules with commas, and NAME=BOUND. NULL: "any", those of Gopher that
 * do not depend on the language. LS_ECONFIG names what is none of them, with the nearest one. */
int ls_filter_parse(const char *text, struct ls_filter *out, struct ls_error *error);

struct ls_filter_report {
    struct ls_corpus_report corpus;
    int64_t first[LS_FILTER_RULES_MAX];  /* removed, by the first rule that they fail */
    int64_t failed[LS_FILTER_RULES_MAX]; /* that fail the rule */
};
/* A document that fails a rule is removed. list: as of ls_dedup_config, with the rules that each
 * fails. */
int ls_corpus_filter(const struct ls_corpus_config *config, const struct ls_filter *filter,
                     const char *list, struct ls_filter_report *report, struct ls_error *error);

/* ---- split ----------------------------------------------------------------------------------- */

/* Document i goes to OUTPUT_<ls_shares_next>.jsonl, or if OUTPUT ends in "/" to the folder
 * OUTPUT/<ls_shares_next>/. Of JSONL any object is a document. documents[shares->count] becomes how
 * many each has. LS_EDATA if one has none. */
int ls_corpus_split(const struct ls_corpus_config *config, const struct ls_shares *shares,
                    int64_t *documents, struct ls_corpus_report *report, struct ls_error *error);

LS_C_END
#endif
