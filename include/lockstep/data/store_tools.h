/* lockstep/data/store_tools.h - what is done with whole token stores.
 *
 *   ls_store_verify      is a store what was prepared?
 *   ls_store_stats       how many documents, how long; ls_store_stats_draw draws it
 *   ls_store_merge       several stores become one
 *   ls_store_split       one becomes several, document by document
 *   ls_store_detokenize  its documents become text again
 *
 * A store is PREFIX, PREFIX.bin or PREFIX.idx of Megatron's indexed dataset; verify takes the other
 * files of ls_token_store_open too. `tokenizer` is a spec, or NULL for the one recorded beside the
 * store. A spec that makes another tokenizer than the recorded one is LS_EDATA, as is a recorded
 * one whose files have changed.
 *
 * Everything streams: memory grows by 12 bytes for each document of an output (of a part of it),
 * and by 16 for each run of tokens with one mask and weight.
 *
 * The output of merge, split and detokenize (struct ls_store_job) is one of
 *   names    under temporary names until all files are whole. After a failure or a stop nothing is
 *            left, and what was there stays
 *   folders  if it ends in "/": part i, NNNNNN.*, has documents [i * part_documents,
 *            (i + 1) * part_documents) of the result. It gets its names when it is whole. job.txt
 *            says what is made here, so the same call with the same inputs goes on behind the parts
 *            that are there, without reading their documents; any other call is LS_EINVAL
 *
 * An output that would replace an input is LS_EINVAL. If stop is not NULL and becomes nonzero (a
 * signal handler may set it), they end with LS_ESTOPPED. All functions are Local. They tell their
 * progress (lockstep/base/meter.h). */
#ifndef LOCKSTEP_DATA_STORE_TOOLS_H
#define LOCKSTEP_DATA_STORE_TOOLS_H

#include <lockstep/base.h>

#include <stdio.h>

LS_C_BEGIN

/* ---- verify ---------------------------------------------------------------------------------- */

struct ls_store_check {
    int64_t tokens, documents; /* documents: 0 if the format does not say */
    int64_t counted;           /* tokens that count as targets */
    int64_t vocabulary;        /* every id is below it; 0: no tokenizer is known */
    int64_t blocks;            /* that were compared with their digests; 0: there are none */
};
/* Checks the index, the mask, the tokenizer, every id, and every block of the files against
 * PREFIX.sums (lockstep/data/sums.h) if it is there. LS_EDATA says what is wrong, and where. */
int ls_store_verify(const char *store, const char *tokenizer, const volatile int *stop,
                    struct ls_store_check *out, struct ls_error *error);

/* ---- stats ----------------------------------------------------------------------------------- */

enum { LS_STATS_QUANTILES = 7, LS_STATS_BINS = 63 };
struct ls_store_stats {
    int64_t documents, tokens;
    int64_t counted;           /* tokens that count as targets */
    int64_t text_bytes;        /* of the documents, decoded; -1: no tokenizer is known */
    int64_t shortest, longest; /* documents, in tokens */
    /* The least length that this share of the documents does not exceed (nearest rank). */
    int64_t quantile[LS_STATS_QUANTILES];
    /* Documents of 2^i to 2^(i + 1) - 1 tokens. */
    int64_t bin[LS_STATS_BINS];
};
/* Of quantile[i]: 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99. */
extern const double ls_stats_share[LS_STATS_QUANTILES];
/* Memory: 8 bytes a document. */
int ls_store_stats(const char *store, const char *tokenizer, const volatile int *stop,
                   struct ls_store_stats *out, struct ls_error *error);
/* The bins as bars: an SVG of 880 units (lockstep/trace/picture.h). title names the store. */
int ls_store_stats_draw(const struct ls_store_stats *stats, const char *title, FILE *file,
                        struct ls_error *error);

/* ---- how outputs are made -------------------------------------------------------------------- */

enum { LS_PART_DOCUMENTS = 100000 };
struct ls_store_job {
    const char *output;
    int64_t part_documents;   /* of a folder's parts; 0: LS_PART_DOCUMENTS */
    int workers;              /* decoding threads of detokenize, at least 1 */
    const volatile int *stop; /* NULL: never */
};

/* ---- merge, split ---------------------------------------------------------------------------- */

struct ls_store_part {
    int64_t documents, tokens, counted;
    int64_t resumed; /* documents of parts that were there */
};
/* Copies on one thread: a disk is slower.
 *
 * The documents of stores[count], in order, as OUTPUT.bin, .idx, .sums and, if a store has a mask,
 * .mask (all tokens of a store without one count), and OUTPUT.tokenizer if a tokenizer is recorded
 * for a store. All stores must have one tokenizer (ls_tokenizer_stores_check). Tokens have
 * ls_token_dtype of its vocabulary; without a tokenizer uint16 if all stores have uint16 or uint8,
 * otherwise int32. A document is one sequence; empty ones are dropped. */
int ls_store_merge(const char *const *stores, int count, const struct ls_store_job *job,
                   struct ls_store_part *out, struct ls_error *error);

/* Exact shares: item i goes to the part that lags most behind its share of the first i + 1 items
 * (of those, to the first one), so that at every prefix each part has its share but for less than
 * `count` items, and with two parts but for less than one. A plain value. */
enum { LS_PARTS_MAX = 64 };
struct ls_shares {
    int count;
    int64_t weight[LS_PARTS_MAX]; /* of parts, above 0; their sum is at most 2^31 */
    int64_t given[LS_PARTS_MAX];  /* items so far; 0 at first */
};
/* "N" for N equal parts, or weights with commas ("0.9,0.1" or "9,1"), of which six decimals count.
 * LS_ECONFIG names what is wrong. */
int ls_shares_parse(const char *text, struct ls_shares *out, struct ls_error *error);
/* The part of the next item. */
int ls_shares_next(struct ls_shares *shares);

/* Document i goes to part ls_shares_next: OUTPUT_0.bin, .idx, ... to OUTPUT_<count - 1>.*, or the
 * folders OUTPUT/0/ to OUTPUT/<count - 1>/, with types, mask and tokenizer as of ls_store_merge.
 * parts[count] becomes what each has. LS_EDATA if a part has no document. */
int ls_store_split(const char *store, const struct ls_shares *shares,
                   const struct ls_store_job *job, struct ls_store_part *parts,
                   struct ls_error *error);

/* ---- detokenize ------------------------------------------------------------------------------ */

struct ls_detokenize_report {
    int64_t documents, tokens;
    int64_t resumed;    /* documents of parts that were there */
    int64_t text_bytes; /* of the others */
};
/* Writes a line {"text": ...} a document, with json_key (NULL: "text") as key: the text of its ids
 * without the end-of-document id and the ids that the tokenizer puts around a text. Bytes that are
 * not UTF-8, which JSON cannot hold, become U+FFFD. The output is a file (see
 * lockstep/base/file.h) or a folder, NNNNNN.jsonl; a folder that is there needs no "/". Threads
 * decode, and the output does not depend on their number. */
int ls_store_detokenize(const char *store, const char *tokenizer, const char *json_key,
                        const struct ls_store_job *job, struct ls_detokenize_report *out,
                        struct ls_error *error);

/* LS_EINVAL if path, which is to be replaced or removed, is a file of the store. */
int ls_store_spare(const char *store, const char *path, struct ls_error *error);

LS_C_END
#endif
