/* lockstep/data/train_tokenizer.h - a tokenizer of one's own text: byte-level byte-pair encoding.
 *
 *     corpora -> pieces (by the pattern) and how often each occurs -> merges -> tokenizer.json
 *
 * Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units",
 * ACL 2016, on the bytes of pieces as in GPT-2. Everything here is Local.
 */
#ifndef LOCKSTEP_DATA_TRAIN_TOKENIZER_H
#define LOCKSTEP_DATA_TRAIN_TOKENIZER_H

#include <lockstep/data/corpus_tools.h>

LS_C_BEGIN

enum {
    LS_TRAIN_VOCABULARY_MAX = 1 << 20,
    LS_TRAIN_SPECIAL_MAX = 1024,     /* special tokens */
    LS_TRAIN_TOKEN_BYTES_MAX = 2048, /* no merge makes a longer token */
    LS_TRAIN_FREQUENCY_DEFAULT = 2,  /* of frequency_min */
};

struct ls_train_tokenizer_config {
    /* output: the folder to write, made if it is not there, in one that is. workers count; what is
     * written does not depend on them. If it is stopped, nothing is written. */
    struct ls_corpus_config corpus;
    /* Ids in all: special tokens, the 256 bytes, and one for each token that merges make. */
    int64_t vocabulary;
    const char *pattern; /* how text is split: gpt2, llama3, qwen, o200k_base or tekken */
    /* Their ids are the first ones, in this order; at least one. In the corpus they are ordinary
     * text. */
    const char *const *special;
    int special_count;
    int64_t frequency_min; /* a pair that occurs less often is not merged; at least 1 */
};
struct ls_train_tokenizer_report {
    int64_t documents, text_bytes; /* of the corpus, unpacked */
    int64_t skipped;               /* bad records, not among the documents */
    int64_t words;                 /* distinct pieces of two bytes or more */
    int64_t vocabulary;            /* ids made: fewer than asked for if no pair is left to merge */
    int64_t merges;
    double count_seconds, merge_seconds;
};
/* Writes OUTPUT/tokenizer_config.json and then OUTPUT/tokenizer.json, each complete or not at all;
 * the tokenizer's spec is OUTPUT. A folder that was made is removed again on failure.
 *
 * Each step merges the pair of neighbours that occurs most often; of several, the pair with the
 * least left id, then with the least right id. Ids are given in the order of tokenizer.json of the
 * package `tokenizers`: special tokens, the bytes by the characters that stand for them, tokens as
 * they are made. So the same corpus gives the file of its trainer, if no count reaches 2^31 (it has
 * 32 bits there) and no token LS_TRAIN_TOKEN_BYTES_MAX.
 *
 * LS_EINVAL: a bad configuration, or output; LS_EDATA: a bad record, or no text; LS_EIO,
 * LS_ENOSPC, LS_ENOMEM, LS_ESTOPPED. LS_ENOTSUP: the distinct pieces have more than 2^32 bytes. */
int ls_train_tokenizer(const struct ls_train_tokenizer_config *config,
                       struct ls_train_tokenizer_report *report, struct ls_error *error);

LS_C_END
#endif
