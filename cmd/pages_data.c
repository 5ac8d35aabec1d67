/* Pages of the commands of `lockstep data` that work on corpora and stores. */
#include "cmd.h"

#define OPTIONS(name) static const struct cmd_option name[]
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, NULL                                                                           \
    }
#define TOKENIZER                                                                                  \
    {                                                                                              \
        "--tokenizer", "SPEC", "the tokenizer of a store that has none recorded beside it"         \
    }

#define INPUT                                                                                      \
    {                                                                                              \
        "--input", "PATH...",                                                                      \
            "text, JSONL (.gz and .zst too), or folders of them; - is standard input, jsonl:- too" \
    }
#define OUTPUT                                                                                     \
    {                                                                                              \
        "--output", "FILE|FOLDER/",                                                                \
            "a JSONL file (- is standard output), or a folder of parts, with which a stopped "     \
            "job goes on"                                                                          \
    }
#define JSON_KEYS                                                                                  \
    {                                                                                              \
        "--json-keys", "KEY", "the key of a JSONL object that holds its text (default: text)"      \
    }
#define PART_DOCUMENTS                                                                             \
    {                                                                                              \
        "--part-documents", "N", "documents in a part of a folder (default: 100000)"               \
    }
#define ON_ERROR                                                                                   \
    {                                                                                              \
        "--on-error", "stop|skip", "stop at a bad JSONL record (the default), or skip it"          \
    }
#define WORKERS                                                                                    \
    {                                                                                              \
        "--workers", "N", "judge documents with N threads (default: all cores)"                    \
    }
OPTIONS(dedup_options) = {
    INPUT,
    OUTPUT,
    JSON_KEYS,
    PART_DOCUMENTS,
    ON_ERROR,
    WORKERS,
    {"--near", "SIMILARITY", "drop near duplicates too, of this Jaccard similarity, such as 0.8"},
    {"--hashes", "N", "hash functions of MinHash (default: 128)"},
    {"--shingle", "N", "words of a shingle (default: 5)"},
    {"--pairs", "FILE", "write a JSON line for each document that was dropped, with the one kept"},
    END};
OPTIONS(filter_options) = {
    INPUT,
    OUTPUT,
    JSON_KEYS,
    PART_DOCUMENTS,
    ON_ERROR,
    WORKERS,
    {"--rules", "RULES",
     "groups (any, gopher, repetition, c4, length) and rules (NAME or NAME=BOUND), with commas; "
     "default: any"},
    {"--explain", "FILE", "write a JSON line for each document that was dropped, with its rules"},
    {"--list", NULL, "print the rules, with their groups and bounds"},
    END};
OPTIONS(detokenize_options) = {OUTPUT,
                               TOKENIZER,
                               {"--json-keys", "KEY", "the key of the text (default: text)"},
                               PART_DOCUMENTS,
                               {"--workers", "N", "decode with N threads (default: all cores)"},
                               END};
OPTIONS(merge_options) = {
    {"--output", "PREFIX|FOLDER/",
     "write PREFIX.bin, .idx and what belongs to them, or a folder of stores, with which a stopped "
     "job goes on"},
    PART_DOCUMENTS,
    END};
OPTIONS(pack_options) = {{"--sequence", "T", "tokens of a sequence: data.sequence of the training"},
                         END};
OPTIONS(split_options) = {
    {"--output", "PREFIX|FOLDER/",
     "write PREFIX_0, PREFIX_1 and so on (of JSONL, PREFIX_0.jsonl ...), or the folders FOLDER/0/, "
     "FOLDER/1/ and so on, with which a stopped job goes on"},
    {"--parts", "N|WEIGHTS", "N equal parts, or a weight for each, such as 0.9,0.1"},
    PART_DOCUMENTS,
    {"--on-error", "stop|skip", "stop at a bad record of JSONL (the default), or skip it"},
    END};
OPTIONS(stats_options) = {
    {"--svg", "FILE", "draw the lengths of the documents of one store as a histogram"},
    TOKENIZER,
    END};
OPTIONS(train_tokenizer_options) = {
    INPUT,
    {"--vocab", "N", "ids in all: special tokens, the 256 bytes, and merges"},
    {"--output", "DIR", "write tokenizer.json and tokenizer_config.json into this folder"},
    {"--pattern", "NAME",
     "split text as this tokenizer does: gpt2 (the default), llama3, qwen, o200k_base or tekken"},
    {"--special", "TOKEN[,TOKEN...]",
     "special tokens, which get the first ids (default: <|endoftext|>). <|endoftext|> or "
     "<|end_of_text|> ends a document; otherwise the first one does"},
    {"--min-frequency", "N", "merge no pair that occurs less often (default: 2)"},
    {"--json-keys", "KEY", "the key of a JSONL object that holds its text (default: text)"},
    ON_ERROR,
    {"--workers", "N", "count words with N threads (default: all cores)"},
    END};
OPTIONS(verify_options) = {TOKENIZER, END};

const struct cmd_page cmd_data_pages[] = {
    {"data dedup", "--input PATH... --output FILE|FOLDER/", "drop documents that repeat another",
     "Keeps the first of the documents with equal texts. With --near, a document goes too if the "
     "similarity of its shingles (runs of words) to an earlier one that was kept is at least this, "
     "as MinHash estimates it. JSONL lines that remain are written as they stand, in their order.",
     dedup_options, cmd_data_dedup, CMD_ANY_WORDS,
     "lockstep data dedup --input web/ --output unique.jsonl\n"
     "lockstep data dedup --input web/ --output unique/ --near 0.8 --workers 8\n"},
    {"data filter", "--input PATH... --output FILE|FOLDER/", "drop documents by rules of quality",
     "Drops documents that fail a rule of Gopher, of C4 or of your own bounds, and prints how many "
     "each rule dropped. The default is the rules of Gopher that do not depend on the language. "
     "Lines are never cut out of a document.",
     filter_options, cmd_data_filter, CMD_ANY_WORDS,
     "lockstep data filter --input web.jsonl --output good.jsonl --explain dropped.jsonl\n"
     "lockstep data filter --input web/ --output good/ --rules gopher,c4,words-min=20\n"},
    {"data split", "STORE|FILE.jsonl --parts N|WEIGHTS --output PREFIX|FOLDER/",
     "cut a token store, or JSONL, into parts",
     "Document i goes to the part that lags most behind its share, so the parts are spread evenly "
     "over the store and depend on nothing but its order. Masks, weights and the tokenizer's name "
     "are kept.",
     split_options, cmd_data_split, 1,
     "lockstep data split corpus_train --parts 0.99,0.01 --output corpus\n"},
    {"data pack", "STORE... --sequence T", "choose which documents share a sequence",
     "Packs whole documents into sequences of T tokens so that as few places as possible stay "
     "empty (best-fit decreasing), and writes PREFIX.pack beside each store, for "
     "data.packing=best_fit. Only a document that is longer than a sequence is cut. Prints how "
     "many are, how much padding there is, and what the other two ways of data.packing would do.",
     pack_options, cmd_data_pack, CMD_ANY_WORDS, "lockstep data pack corpus --sequence 2048\n"},
    {"data merge", "STORE... --output PREFIX|FOLDER/", "join token stores",
     "Writes the documents of all stores, in order, as one store. All must have one tokenizer. If "
     "one has a mask, so has the result: every token of a store without a mask counts. The same "
     "goes for weights: without them each is 1.",
     merge_options, cmd_data_merge, CMD_ANY_WORDS,
     "lockstep data merge web_train code_train --output all\n"},
    {"data detokenize", "STORE --output FILE|FOLDER/", "make text of a token store",
     "Writes a JSON line for each document: its text without the tokens that end it or were put "
     "around it. Bytes that are not UTF-8 become U+FFFD, because JSON cannot hold them.",
     detokenize_options, cmd_data_detokenize, 1,
     "lockstep data detokenize corpus_valid --output valid.jsonl\n"},
    {"data verify", "STORE...", "check token stores",
     "Checks the index, the mask, that the tokenizer is the recorded one, that every id is in its "
     "vocabulary, and each block of 4 MiB against the digests in PREFIX.sums, which `data prepare` "
     "writes. Prints a line for each store; if one is damaged, the others are checked anyway.",
     verify_options, cmd_data_verify, CMD_ANY_WORDS, "lockstep data verify corpus\n"},
    {"data stats", "STORE...", "measure token stores",
     "Prints documents, tokens, quantiles of the lengths of documents and, if the tokenizer is "
     "known, tokens per byte of text.",
     stats_options, cmd_data_stats, CMD_ANY_WORDS,
     "lockstep data stats corpus_train --svg lengths.svg\n"},
    {"data train-tokenizer", "--input PATH... --vocab N --output DIR",
     "make a tokenizer from text: byte-level BPE",
     "Splits text into words, counts them, and merges the most frequent pair of neighbours into a "
     "token, until the vocabulary has N ids. Of pairs that occur equally often, the one with the "
     "least ids comes first. The output does not depend on --workers.\n\nDIR is made if it is not "
     "there, and is then a --tokenizer of `lockstep data prepare`. The packages `tokenizers` and "
     "`transformers` read it too.",
     train_tokenizer_options, cmd_data_train_tokenizer, CMD_ANY_WORDS,
     "lockstep data train-tokenizer --input web/ --vocab 32768 --output tokenizer\n"
     "lockstep data train-tokenizer --input web.jsonl.zst --vocab 65536 --pattern llama3 "
     "--special '<|endoftext|>,<|im_start|>,<|im_end|>' --output tokenizer\n"},
    {0},
};
