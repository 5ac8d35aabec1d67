/* lockstep/data.h - from text to samples.
 *
 *     text -> tokenizer -> token store -> sample order -> loader -> inputs and targets
 *
 *   struct ls_tokenizer      bytes to ids and back: `byte`, or byte-pair encoding from files
 *   ls_data_prepare          corpora to Megatron stores, with a train / validation split
 *   struct ls_sums           digests of a store's files (lockstep/data/sums.h)
 *   struct ls_token_store    read-only view of Megatron .bin/.idx, llm.c and nanoGPT token files
 *   struct ls_sample_order   which sample of a store comes when: a keyed permutation, no state
 *   struct ls_blend          which sample of which store comes when (lockstep/data/blend.h)
 *   struct ls_loader         a prefetch thread that fills batches ahead of the step
 *   struct ls_distributed_sampler   PyTorch's DistributedSampler
 *
 * A typical reader:
 *
 *     struct ls_token_store *store;
 *     ls_token_store_open("corpus_train", &store, &error);
 *     ls_token_store_samples(store, 1024, &samples, &error);
 *     struct ls_blend *blend;
 *     ls_blend_of_one(samples, 1, true, &blend, &error);  // seed 1, shuffled
 *     struct ls_loader *loader;
 *     ls_loader_new(&(struct ls_loader_config){.blend = blend, .stores = &store,
 *                   .sequence_tokens = 1024, .vocabulary = 50257, .sequences_max = 8, .depth = 2},
 *                   &loader, &error);
 *     ls_loader_post(loader, 0, 8);                        // samples 0 to 7 of the run
 *     for (int64_t step = 0; step < steps; step++) {
 *         ls_loader_post(loader, (step + 1) * 8, 8);       // read the next ones meanwhile
 *         ls_loader_take(loader, &inputs, &targets, &wait_s, &error);
 *         ...                                              // inputs[8][1024], targets[8][1024]
 *     }
 *     ls_loader_free(loader);
 *     ls_blend_free(blend);
 *     ls_token_store_close(store);
 *
 * Everything here is Local: no function communicates. Which samples a rank reads is the caller's
 * arithmetic on global sample numbers, so any rank can read any sample.
 */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <lockstep/base.h>
#include <lockstep/base/file.h>
#include <lockstep/chat.h>
#include <lockstep/data/blend.h>
#include <lockstep/data/choices.h>
#include <lockstep/net.h>

LS_C_BEGIN

/* ---- tokenizers ----------------------------------------------------------------------------- */

/* Immutable after it was made: any number of threads may use one. */
struct ls_tokenizer;
/* One thread's scratch for encoding with one tokenizer: matcher state and a cache of pieces. */
struct ls_encoder;

/* Growing outputs; start from {0}, clear by count = 0, release with the function below. */
struct ls_token_list {
    int32_t *ids;
    int64_t count, capacity;
};
struct ls_text {
    char *bytes; /* not terminated: text may hold zeros */
    size_t count, capacity;
};
void ls_token_list_release(struct ls_token_list *list);
void ls_text_release(struct ls_text *text);

/* spec is one of
 *   "byte"                   ids 0-255 are the bytes, 256 ends a document; vocabulary 257
 *   a directory              of tokenizer.json, or of vocab.json and merges.txt (or gpt2-...),
 *                            and what lies beside them (chat.h's ls_tokenizer_settings_read), or
 *                            of one rank file, PATTERN.tiktoken
 *   "FILE.json", "VOCAB.json,MERGES.txt", "PATTERN.tiktoken", "PATTERN:FILE"    these by path
 * PATTERN is gpt2, r50k_base, cl100k_base, o200k_base, llama3, qwen or tekken. doc/data.md says
 * what of tokenizer.json is supported; what is not is LS_ENOTSUP, by name and place. A vocab.json
 * maps tokens to ids 0 to n - 1 without holes and holds the 256 bytes, every merge's parts and
 * result, and "<|endoftext|>", which ends a document. LS_EDATA names file, line or token and what
 * was expected; LS_EIO if a file cannot be read.
 */
enum { LS_VOCABULARY_BYTES_MAX = 64 << 20 }; /* of each file; 256,000 tokens take 35 MiB at most */
int ls_tokenizer_new(const char *spec, struct ls_tokenizer **out, struct ls_error *error);
void ls_tokenizer_free(struct ls_tokenizer *tokenizer);
/* "byte", "gpt2", "tokenizer.json", or a rank file's pattern. Borrowed. */
const char *ls_tokenizer_name(const struct ls_tokenizer *tokenizer);
/* A spec that makes the same tokenizer from any working directory (paths are absolute). Borrowed.
 */
const char *ls_tokenizer_spec(const struct ls_tokenizer *tokenizer);
/* The files that it was made of: path is absolute; a directory with each under its name, which may
 * name a folder, is a spec of the same tokenizer. Borrowed. *count is 0 if it needs no files. */
struct ls_tokenizer_file {
    char *path, *name;
};
const struct ls_tokenizer_file *ls_tokenizer_files(const struct ls_tokenizer *tokenizer,
                                                   int *count);
enum { LS_TOKENIZER_FILES_MAX = 64 };
/* Of the bytes of the vocabulary's files, wherever they lie: two tokenizers of one digest give ids
 * the same meaning. */
void ls_tokenizer_digest(const struct ls_tokenizer *tokenizer, char text[33]);
/* Number of ids; ids are 0 to vocabulary - 1. Some may belong to no token. */
int64_t ls_tokenizer_vocabulary(const struct ls_tokenizer *tokenizer);
/* The same for a model of so many tokens, 0 if it has no number of its own: published models may
 * lack rows for added tokens, such as a pad that training never saw, and work without them. A text
 * that has such a token is refused where it is used. tokenizer may be NULL: 0. */
int64_t ls_tokenizer_vocabulary_of(const struct ls_tokenizer *tokenizer, int64_t model);
/* The id that ends a document: <|endoftext|> or <|end_of_text|>, else what eos gives, else </s> or
 * <eos>. -1: none. */
int32_t ls_tokenizer_eod(const struct ls_tokenizer *tokenizer);
/* The ids that the files beside tokenizer.json name as beginning a text, and ending one. -1: none.
 */
int32_t ls_tokenizer_bos(const struct ls_tokenizer *tokenizer);
int32_t ls_tokenizer_eos(const struct ls_tokenizer *tokenizer);
/* The ids around a text, in order: those before it (behind = false), or those behind it. Borrowed.
 */
const int32_t *ls_tokenizer_around(const struct ls_tokenizer *tokenizer, bool behind, int *count);
/* The id of an added token, as "<|im_end|>". -1: there is none. */
int32_t ls_tokenizer_id(const struct ls_tokenizer *tokenizer, const char *token);
/* True for ids of special tokens, such as bos. */
bool ls_tokenizer_is_special(const struct ls_tokenizer *tokenizer, int32_t id);
/* The tokenizer that made the store: ls_data_prepare leaves its spec in PREFIX.tokenizer, and its
 * digest in the next line. *out NULL and LS_OK: none is recorded. store is PREFIX, PREFIX_train or
 * PREFIX_valid (with or without .bin or .idx). */
int ls_tokenizer_new_for_store(const char *store, struct ls_tokenizer **out,
                               struct ls_error *error);

/* LS_EDATA, with both names, if two of the stores were made by different tokenizers, or one by
 * another than `tokenizer` (NULL: none is given). stores is a comma-separated list; those that no
 * tokenizer is recorded for are left out. Two are the same if their digests are, or if each id that
 * both have is the same token to them, added ones aside: one that was saved twice. */
int ls_tokenizer_stores_check(const struct ls_tokenizer *tokenizer, const char *stores,
                              struct ls_error *error);
/* The same of the stores among each other, and LS_ECONFIG if one was surely made by another than a
 * run's tokenizer, by its name in the error ("data.tokenizer"): where the recorded one is gone, or
 * has changed since, another digest is not enough. tokenizer may be NULL. */
int ls_tokenizer_stores_fit(const struct ls_tokenizer *tokenizer, const char *from,
                            const char *stores, struct ls_error *error);

int ls_encoder_new(const struct ls_tokenizer *tokenizer, struct ls_encoder **out,
                   struct ls_error *error);
void ls_encoder_free(struct ls_encoder *encoder);
struct ls_encode_options {
    /* Special tokens in the text become their ids (as `tokenizers` does). Otherwise they are
     * ordinary text (tiktoken's encode_ordinary). Added tokens that are not special are found in
     * either case. */
    bool special;
    bool around;     /* with the ids that the tokenizer puts around a text, such as bos */
    bool continued;  /* the text goes on from another one: nothing is put in front */
    bool unfinished; /* another one goes on from it: nothing is put behind */
};
/* Appends the ids of text[bytes] to *out. Any bytes are accepted: of text that is not UTF-8, each
 * offending byte becomes its own token. A character that the vocabulary lacks becomes its unknown
 * token or, if it has none, is left out. LS_ENOMEM; LS_EDATA if a pattern cannot be matched
 * within PCRE2's limits. */
int ls_encode_with(struct ls_encoder *encoder, const void *text, size_t bytes,
                   const struct ls_encode_options *options, struct ls_token_list *out,
                   struct ls_error *error);
/* The same with options {0}: what data preparation does. */
int ls_encode(struct ls_encoder *encoder, const void *text, size_t bytes, struct ls_token_list *out,
              struct ls_error *error);
/* Characters so far that the vocabulary lacks. */
int64_t ls_encoder_unknown(const struct ls_encoder *encoder);
/* Appends the bytes of ids[count] to *out. decode(encode(x)) is x for every byte string x, where
 * the tokenizer has no normalizer that changes it. Special tokens give their texts
 * ("<|endoftext|>"). An id of no token gives nothing; one outside the vocabulary is LS_EDATA. */
int ls_decode(const struct ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
              struct ls_text *out, struct ls_error *error);

/* Decoding while ids arrive. Bytes of a character come out once it is complete, so every piece of
 * valid text is valid UTF-8; bytes that are no part of a character come out at once. A plain value:
 *
 *     struct ls_detokenizer d = {.tokenizer = tokenizer, .skip_special = true};
 *     while (...)
 *         ls_detokenizer_next(&d, id, &text, &error);
 *     ls_detokenizer_end(&d, &text, &error);
 */
struct ls_detokenizer {
    const struct ls_tokenizer *tokenizer; /* borrowed */
    bool skip_special;                    /* special tokens give nothing */
    /* Its own; 0 at first. */
    bool begun;
    int stripped, held_count;
    char held[4]; /* of a character that is not complete */
};
/* Appends what the id completes to *out. LS_EDATA for an id outside the vocabulary. */
int ls_detokenizer_next(struct ls_detokenizer *detokenizer, int32_t id, struct ls_text *out,
                        struct ls_error *error);
/* Appends what is held back; the detokenizer may begin again. */
int ls_detokenizer_end(struct ls_detokenizer *detokenizer, struct ls_text *out,
                       struct ls_error *error);

/* ---- corpora to stores ---------------------------------------------------------------------- */

/* What a record of JSONL is. */
enum ls_prepare_records {
    LS_RECORDS_TEXT,  /* a text, under json_key */
    LS_RECORDS_PAIRS, /* an example: {"prompt": ..., "completion": ...} */
    LS_RECORDS_CHAT,  /* a conversation: {"messages": [{"role": ..., "content": ...}, ...]} */
};
struct ls_prepare_config {
    /* Files and folders. A folder is read recursively: its regular files in the byte order of
     * their names, without those whose name begins with a dot. NAME.jsonl, and the
     * file of "jsonl:PATH" (such as a pipe), holds one JSON object a line, each a document; any
     * other file is one document. "text:PATH" takes all files as texts, also tables (.csv, .tsv),
     * lists of JSON objects and JSON lines under other names, which are refused otherwise. A
     * further .gz or .zst is unpacked. */
    const char *const *inputs;
    int inputs_count;
    const char *output;    /* prefix of the files written */
    const char *tokenizer; /* spec */
    /* 0 <= validation < 1, the share of documents held out: document i is one of them where
     * floor((i + 1) * validation) > floor(i * validation). Where that holds out none (fewer than
     * 1 / validation documents), the last `validation` of all tokens is held out instead, cut at
     * the last end of a line before that place within its document, if there is one. An example or
     * a conversation is counted and held out whole, though each turn of it may be a document. */
    double validation;
    const char *json_key; /* member of a JSONL object that holds the text; NULL: "text" */
    /* Of examples, all inputs are JSONL, and the stores have a mask: the completion counts, and the
     * end of the document behind it. Each part is encoded by itself, as it is when a model answers.
     * Of conversations special tokens in the text are meant; what
     * ls_chat_examples says counts, the end of the document does not, and there is none behind one
     * that the template ended with the same token. chat is borrowed. */
    enum ls_prepare_records records;
    const struct ls_chat *chat;
    /* The stores have weights (PREFIX_train.weights): each token of a JSONL record weighs the
     * number under this key, 1 if the record has none, or null. Another member that is no number,
     * or no finite float32, makes a bad record. NULL: no weights are read. */
    const char *weight_key;
    /* A JSONL record that is malformed or has no text ends the preparation, or, with skip_bad, is
     * passed over: counted, and written with file, line and reason to PREFIX.skipped.txt. skipped
     * (may be NULL) is called for each on the calling thread. An archive that is cut off or damaged
     * always ends it, since nobody knows what followed. */
    bool skip_bad;
    void (*skipped)(void *user, const char *why);
    void *user;
    /* Put the ids around each document that the tokenizer's files say (its post-processor,
     * add_bos_token and add_eos_token), such as bos; not around a conversation, whose template has
     * them. An eos that also ends the document stands once. */
    bool around;
    /* End each document with the tokenizer's end-of-document id: LS_EINVAL if it has none. */
    bool append_eod;
    int workers; /* encoding threads, at least 1. The output does not depend on it */
    /* When not NULL and it becomes nonzero (a signal handler may set it), preparation ends with
     * LS_ESTOPPED and nothing is left behind. Borrowed. */
    const volatile int *stop;
};
struct ls_prepare_split {
    int64_t documents, tokens;
    int64_t counted; /* tokens that count as targets */
};
struct ls_prepare_report {
    struct ls_prepare_split train, validation;
    int64_t text_bytes; /* of all documents, unpacked */
    int64_t skipped;    /* bad records passed over */
    int64_t unknown;    /* characters that the tokenizer's vocabulary lacks */
    bool alike;         /* weights were asked for, and each is 1 */
    double seconds;
};
/* Writes PREFIX_train.bin/.idx and, when validation > 0, PREFIX_valid.bin/.idx (Megatron's indexed
 * dataset, uint16 below 65500 ids and int32 from there), one sequence a document, of examples
 * PREFIX_train.mask and PREFIX_valid.mask, of each store PREFIX_train.sums (lockstep/data/sums.h),
 * and PREFIX.tokenizer, a line with the tokenizer's spec.
 * Streams: memory does not grow with the corpus but for 12 bytes a document. Everything is written
 * under temporary names, synced, and only then renamed, .bin before .idx; on failure (LS_ENOSPC
 * if the disk is full) nothing is left and nothing that was there is touched. Empty documents
 * are left out; LS_EDATA if no text is left.
 */
int ls_data_prepare(const struct ls_prepare_config *config, struct ls_prepare_report *report,
                    struct ls_error *error);
/* Of the tokens that it writes for a vocabulary of so many ids. */
enum ls_dtype ls_token_dtype(int64_t vocabulary);

/* ---- token stores --------------------------------------------------------------------------- */

/* Immutable after it was opened: any number of threads may read one. */
struct ls_token_store;

enum ls_token_file_kind { LS_TOKENS_MEGATRON, LS_TOKENS_LLMC, LS_TOKENS_RAW };
struct ls_token_file {
    const char *path; /* of the file that holds the tokens; borrowed from the store */
    enum ls_token_file_kind kind;
    enum ls_dtype dtype;
    int64_t tokens;
    int64_t sequences, documents; /* Megatron; 0 if the format does not say */
    bool masked;                  /* PREFIX.mask is there */
    int64_t counted;              /* tokens that count as targets: all, without a mask */
    bool weighted;                /* PREFIX.weights is there */
};

/* How files elsewhere are read; zeros stand for the defaults. */
struct ls_store_options {
    const char *cache;            /* a directory for their blocks; NULL or "": memory */
    int64_t cache_bytes;          /* of it: 64 GiB */
    int64_t memory_bytes;         /* of blocks in memory, if there is no cache: 64 MiB */
    int64_t block_bytes;          /* a multiple of 64 KiB: 4 MiB; sums check no other */
    int requests;                 /* of read-ahead at once: 8 */
    struct ls_net_options net;    /* ends: a read that waits ends with LS_ESTOPPED */
    const struct ls_fault *fault; /* of the calls that write the cache; borrowed, may be NULL */
};

/* spec is a comma-separated list, read as one stream in that order, of
 *   PREFIX, PREFIX.bin or PREFIX.idx   Megatron's indexed dataset
 *   FILE                               llm.c tokens (magic 20240520 version 1: uint16,
 *                                      magic 20240801 version 7: uint32)
 *   u16:FILE                           headerless uint16 (nanoGPT)
 *   FOLDER                             all stores in it, in the byte order of their names
 *   a pattern with *, ? or [...]       all stores whose names match, in the same order
 * Names may be URLs: http://, https:// or s3://bucket/ (lockstep/net.h). Of these s3:// alone has
 * folders, with a slash at their ends, and patterns.
 * What a header promises is checked against the files: LS_EDATA names the file, what was found and
 * what was expected. Of an index elsewhere only the header is read, unless the store is packed. A
 * file that changes while the store is open is LS_EDATA when it is read. options may be NULL. */
int ls_token_store_open_with(const char *spec, const struct ls_store_options *options,
                             struct ls_token_store **out, struct ls_error *error);
int ls_token_store_open(const char *spec, struct ls_token_store **out, struct ls_error *error);
void ls_token_store_close(struct ls_token_store *store);
/* From here on reads that wait for a server end with LS_ESTOPPED once *stop is not zero. Borrowed;
 * before the store is shared. */
void ls_token_store_stop_on(struct ls_token_store *store, const volatile int *stop);
/* The same for whatever this process reads elsewhere, opening stores and their tokenizers included;
 * *stop outlives it. NULL: nothing does. */
void ls_data_stop_on(const volatile int *stop);
/* All tokens of the stream. */
int64_t ls_token_store_tokens(const struct ls_token_store *store);
int ls_token_store_files(const struct ls_token_store *store);
struct ls_token_file ls_token_store_file(const struct ls_token_store *store, int index);
/* "Megatron indexed dataset" and so on. */
const char *ls_token_file_kind_name(enum ls_token_file_kind kind);
/* Tokens [first, first + count) will be read soon: what of them is elsewhere is fetched meanwhile,
 * by several requests at once. Does not wait, and may do nothing. */
void ls_token_store_prefetch(const struct ls_token_store *store, int64_t first, int64_t count);
/* What reads asked for, and what servers sent, of files elsewhere since the store was opened. */
struct ls_store_traffic {
    int64_t read_bytes, fetched_bytes, requests;
};
/* False: no file of the store is elsewhere. */
bool ls_token_store_traffic(const struct ls_token_store *store, struct ls_store_traffic *traffic);
/* Something that no read fails of, such as a cache that is full: once each. False: nothing new. */
bool ls_token_store_warning(const struct ls_token_store *store, char *text, size_t bytes);
/* LS_EDATA if a file is not what was opened any more. Whoever keeps what came of its tokens asks
 * before: what was read up to now is of the file that was opened. */
int ls_token_store_look(const struct ls_token_store *store, struct ls_error *error);
/* ids[count] = tokens [first, first + count) of the stream, which must lie inside. An id that is
 * not in [0, vocabulary) is LS_EDATA with file, index, id and vocabulary. */
int ls_token_store_read(const struct ls_token_store *store, int64_t first, int64_t count,
                        int64_t vocabulary, int32_t *ids, struct ls_error *error);
/* A store may have a mask (PREFIX.mask, see doc/data.md) that says which of its tokens count as
 * targets; without one all do. Of tokens [first, first + count), which must lie inside: how many
 * count, and targets[count] = -1 if a token does not. */
int ls_token_store_counted(const struct ls_token_store *store, int64_t first, int64_t count,
                           int64_t *counted, struct ls_error *error);
int ls_token_store_mask(const struct ls_token_store *store, int64_t first, int64_t count,
                        int32_t *targets, struct ls_error *error);
/* And weights (PREFIX.weights, see doc/data.md), which multiply the losses of its tokens as
 * targets. weights[count] = those of tokens [first, first + count), which must lie inside: finite,
 * 1 if no file says otherwise. LS_EDATA with the token of one that is not finite. */
bool ls_token_store_weighted(const struct ls_token_store *store);
int ls_token_store_weights(const struct ls_token_store *store, int64_t first, int64_t count,
                           float *weights, struct ls_error *error);
/* What tells the data of one store from another's: the digest, in 32 hexadecimal digits, of the
 * number of tokens and of 64 pieces of 256 tokens (and their mask and weights), spread evenly.
 * Small stores are covered whole; of a large one a change between the pieces is not seen. */
int ls_token_store_digest(const struct ls_token_store *store, char text[33],
                          struct ls_error *error);
/* From here on samples hold whole documents, one behind the other (data.packing=documents), as many
 * as fit; a document of more than T + 1 tokens is cut, and padding fills a sample up. Before the
 * store is shared. LS_EDATA if a file does not say where documents end. */
int ls_token_store_pack(struct ls_token_store *store, int64_t sequence_tokens,
                        struct ls_error *error);
/* The same with the documents of a sample as PREFIX.pack says (data.packing=best_fit,
 * lockstep/data/pack.h). LS_EDATA, with the command that makes it, if there is
 * none, or one of another store or another length. */
int ls_token_store_pack_best_fit(struct ls_token_store *store, int64_t sequence_tokens,
                                 struct ls_error *error);
bool ls_token_store_packed(const struct ls_token_store *store);
/* Sample i is tokens [i * T, i * T + T], T inputs and the T targets that follow them by one. *out
 * becomes the number of samples, (tokens - 1) / T; fewer than one is LS_EDATA with the numbers. */
int ls_token_store_samples(const struct ls_token_store *store, int64_t sequence_tokens,
                           int64_t *out, struct ls_error *error);

/* ---- order of samples ----------------------------------------------------------------------- */

/* A plain value. Position k of epoch e holds sample ls_sample_permuted(order, e, k): the identity
 * where shuffle is false, else a permutation of [0, samples) keyed by (seed, epoch): a Feistel
 * network whose round function is Philox, on the next power of four, walked until the result falls
 * inside (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). No list of
 * samples exists, so any position of any epoch is known at once. */
struct ls_sample_order {
    int64_t samples; /* at least 1 */
    uint64_t seed;
    bool shuffle;
};
/* index in [0, samples), epoch >= 0. */
int64_t ls_sample_permuted(const struct ls_sample_order *order, int64_t epoch, int64_t index);
/* Sample of global number >= 0: epoch = number / samples, index = number % samples. Epochs follow
 * each other without a gap; no sample is dropped. */
int64_t ls_sample_at(const struct ls_sample_order *order, int64_t number);

/* ---- loading -------------------------------------------------------------------------------- */

/* inputs[T] and targets[T] of one sample of a store, now, on the calling thread. A target that does
 * not count (ls_token_store_mask), or is padding, is -1; such an input is 0. 0 <= sample <
 * ls_token_store_samples. */
int ls_sample_read(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens,
                   int64_t vocabulary, int32_t *inputs, int32_t *targets, struct ls_error *error);
/* weights[T] = those of its targets; 0 for padding. */
int ls_sample_weights(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens,
                      float *weights, struct ls_error *error);
/* *counted = how many of its targets count. */
int ls_sample_counted(const struct ls_token_store *store, int64_t sample, int64_t sequence_tokens,
                      int64_t *counted, struct ls_error *error);
/* It will be read soon: ls_token_store_prefetch of what it holds. */
void ls_sample_prefetch(const struct ls_token_store *store, int64_t sample,
                        int64_t sequence_tokens);
/* starts[T] of a packed sample: where in it the document begins that holds an input; padding is one
 * more. */
void ls_sample_starts(const struct ls_token_store *store, int64_t sample, int32_t *starts);

/* Numbers [first, first + count) of a run's samples. */
struct ls_sample_run {
    int64_t first, count;
};
/* A part of a sequence: tokens [first, first + count). */
struct ls_token_segment {
    int64_t first, count;
};

/* Reads batches ahead on a thread of its own. One caller at a time. */
struct ls_loader;
struct ls_loader_config {
    const struct ls_blend *blend;               /* which sample a number is; borrowed */
    const struct ls_token_store *const *stores; /* of each of its sources; borrowed */
    int64_t sequence_tokens;                    /* T */
    int64_t vocabulary;
    int64_t sequences_max; /* largest count of a request */
    /* The parts of each sequence that are handed out, one behind the other; segment_count 0: all of
     * it. Borrowed. */
    const struct ls_token_segment *segments;
    int segment_count;
    int depth; /* requests that may be waiting or read ahead, at least 1 */
};
/* Samples of runs that will be posted later: what of them lies elsewhere is fetched meanwhile. Does
 * not wait. */
void ls_loader_prefetch(struct ls_loader *loader, const struct ls_sample_run *runs, int64_t count);
/* Takes all memory and starts the thread (with all signals blocked). */
int ls_loader_new(const struct ls_loader_config *config, struct ls_loader **out,
                  struct ls_error *error);
/* Stops the thread; requests not taken are dropped. */
void ls_loader_free(struct ls_loader *loader);
/* Queues samples [first, first + count) of the run, 0 <= count <= sequences_max. Never blocks.
 * LS_EINVAL if depth requests were posted and not yet taken, or an argument is out of range. */
int ls_loader_post(struct ls_loader *loader, int64_t first, int64_t count);
/* The same for `count` runs, one behind the other: at most sequences_max of them, with at most as
 * many samples in all. They are copied. batch is the batch that they are of, which other ranks read
 * too: ls_loader_counted tells how many of its targets count. */
int ls_loader_post_runs(struct ls_loader *loader, const struct ls_sample_run *runs, int64_t count,
                        struct ls_sample_run batch);
/* The oldest request not yet taken: inputs[count, T] and targets[count, T], T the tokens of the
 * segments, valid until the next take
 * or free. *wait_s (may be NULL) = seconds this call waited. LS_EINVAL if nothing was posted;
 * what reading the request reported, otherwise. */
int ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                   double *wait_s, struct ls_error *error);
/* Of the request that was taken last: how many targets of its whole batch count, of each source:
 * [sources], valid as long as its inputs. Every rank counts for itself, in the stores' masks, so
 * that none has to ask the others. */
const int64_t *ls_loader_counted(const struct ls_loader *loader);
/* Of the same request: the weights of its targets, as those are handed out; NULL if no store has
 * any. And of each source the exact sum of those that count, of the samples of this request alone,
 * whole sequences: [sources]. Valid as long as its inputs. */
const float *ls_loader_weights(const struct ls_loader *loader);
const struct ls_exact_sum *ls_loader_weight_sums(const struct ls_loader *loader);
/* Of the same request: starts[count, T] of whole sequences, whatever segments are handed out; NULL
 * if samples are not packed. Valid as long as its inputs. */
const int32_t *ls_loader_starts(const struct ls_loader *loader);
/* Local. out[i] = the segments of sequence i, one behind the other: in [count, tokens], out [count,
 * their sum], of four bytes each (int32 tokens, float32 weights). */
void ls_segments_copy(const struct ls_token_segment *segments, int segment_count, int64_t count,
                      int64_t tokens, const void *in, void *out);

/* ---- distributed sampler -------------------------------------------------------------------- */

/* PyTorch's torch.utils.data.DistributedSampler: every replica gets the same number of samples,
 * replica r positions r, r + num_replicas, ... of the epoch's order. Without drop_last the order is
 * padded by wrapping around (as often as needed) to a multiple of num_replicas; with it the tail is
 * dropped. The semantics are PyTorch's; the permutation when shuffled is ls_sample_permuted's. */
struct ls_distributed_sampler {
    struct ls_sample_order order;
    int64_t num_replicas, rank;
    int64_t num_samples; /* of this replica */
    int64_t total_size;  /* num_samples * num_replicas */
    int64_t epoch;
};
/* samples >= 1, num_replicas >= 1, 0 <= rank < num_replicas; epoch starts at 0. */
int ls_distributed_sampler_init(struct ls_distributed_sampler *sampler, int64_t samples,
                                int64_t num_replicas, int64_t rank, bool shuffle, uint64_t seed,
                                bool drop_last, struct ls_error *error);
/* Call before each epoch so that it is shuffled anew. epoch >= 0. */
void ls_distributed_sampler_set_epoch(struct ls_distributed_sampler *sampler, int64_t epoch);
/* This replica's i-th sample, 0 <= i < num_samples. */
int64_t ls_distributed_sampler_at(const struct ls_distributed_sampler *sampler, int64_t i);

LS_C_END
#endif
