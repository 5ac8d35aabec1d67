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

OPTIONS(detokenize_options) = {{"--output", "FILE", "where the JSONL goes (- is standard output)"},
                               TOKENIZER,
                               {"--json-keys", "KEY", "the key of the text (default: text)"},
                               END};
OPTIONS(merge_options) = {{"--output", "PREFIX", "write PREFIX.bin, .idx and what belongs to them"},
                          END};
OPTIONS(split_options) = {
    {"--output", "PREFIX", "write the stores PREFIX_0, PREFIX_1 and so on"},
    {"--parts", "N|WEIGHTS", "N equal parts, or a weight for each, such as 0.9,0.1"},
    END};
OPTIONS(stats_options) = {
    {"--svg", "FILE", "draw the lengths of the documents of one store as a histogram"},
    TOKENIZER,
    END};
OPTIONS(train_tokenizer_options) = {
    {"--input", "PATH...", "text, JSONL (.gz and .zst too), or folders of them"},
    {"--vocab", "N", "ids in all: special tokens, the 256 bytes, and merges"},
    {"--output", "DIR", "write tokenizer.json and tokenizer_config.json into this folder"},
    {"--pattern", "NAME",
     "split text as this tokenizer does: gpt2 (the default), llama3, qwen, o200k_base or tekken"},
    {"--special", "TOKEN[,TOKEN...]",
     "special tokens, which get the first ids (default: <|endoftext|>). <|endoftext|> or "
     "<|end_of_text|> ends a document; otherwise the first one does"},
    {"--min-frequency", "N", "merge no pair that occurs less often (default: 2)"},
    {"--json-keys", "KEY", "the key of a JSONL object that holds its text (default: text)"},
    {"--workers", "N", "count words with N threads (default: all cores)"},
    END};
OPTIONS(verify_options) = {TOKENIZER, END};

const struct cmd_page cmd_data_pages[] = {
    {"data split", "STORE --parts N|WEIGHTS --output PREFIX", "cut a token store into parts",
     "Document i goes to the part that lags most behind its share, so the parts are spread evenly "
     "over the store and depend on nothing but its order. Masks and the tokenizer's name are kept.",
     split_options, "lockstep data split corpus_train --parts 0.99,0.01 --output corpus\n"},
    {"data merge", "STORE... --output PREFIX", "join token stores",
     "Writes the documents of all stores, in order, as one store. All must have one tokenizer. If "
     "one has a mask, so has the result: every token of a store without a mask counts.",
     merge_options, "lockstep data merge web_train code_train --output all\n"},
    {"data detokenize", "STORE --output FILE", "make text of a token store",
     "Writes a JSON line for each document: its text without the tokens that end it or were put "
     "around it. Bytes that are not UTF-8 become U+FFFD, because JSON cannot hold them.",
     detokenize_options, "lockstep data detokenize corpus_valid --output valid.jsonl\n"},
    {"data verify", "STORE...", "check token stores",
     "Checks the index, the mask, that the tokenizer is the recorded one, that every id is in its "
     "vocabulary, and each block of 4 MiB against the digests in PREFIX.sums, which `data prepare` "
     "writes. Prints a line for each store; if one is damaged, the others are checked "
     "anyway.",
     verify_options, "lockstep data verify corpus\n"},
    {"data stats", "STORE...", "measure token stores",
     "Prints documents, tokens, quantiles of the lengths of documents and, if the tokenizer is "
     "known, tokens per byte of text.",
     stats_options, "lockstep data stats corpus_train --svg lengths.svg\n"},
    {"data train-tokenizer", "--input PATH... --vocab N --output DIR",
     "make a tokenizer from text: byte-level BPE",
     "Splits text into words, counts them, and merges the most frequent pair of neighbours into a "
     "token, until the vocabulary has N ids. Of pairs that occur equally often, the one with the "
     "least ids comes first. The output does not depend on --workers.\n\nDIR is made if it is not "
     "there, and is then a --tokenizer of `lockstep data prepare`. The packages `tokenizers` and "
     "`transformers` read it too.",
     train_tokenizer_options,
     "lockstep data train-tokenizer --input web/ --vocab 32768 --output tokenizer\n"
     "lockstep data train-tokenizer --input web.jsonl.zst --vocab 65536 --pattern llama3 "
     "--special '<|endoftext|>,<|im_start|>,<|im_end|>' --output tokenizer\n"},
    {0},
};
