/* The key/value memory of texts in blocks of LS_ATTENTION_BLOCK tokens (Kwon et al. 2023,
 * "PagedAttention"): each text has a table of its blocks, which texts that begin alike share. A
 * block that several have is never written: who goes on in it takes a copy. */
#ifndef NN_TEXT_BLOCKS_H
#define NN_TEXT_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* The first rows of a block, which a text goes on with elsewhere. */
struct block_copy {
    int32_t from, to;
    int64_t rows;
};
struct text_blocks {
    int64_t texts, width, count; /* width: blocks of a text at most; count: of all */
    int32_t *table;              /* [texts, width]; zero behind those that a text holds */
    int64_t *held;               /* [texts]: blocks, with those that are reserved */
    int64_t *position;           /* [texts]: tokens */
    int32_t *users;              /* [count]: texts that hold it */
    int32_t *free;               /* [free_count], the next one last */
    int64_t free_count;
    struct block_copy *copies; /* [texts]: to be made before the next step's rows are written */
    int copy_count;
};

/* All Local. False without memory; release it in each case. */
bool text_blocks_init(struct text_blocks *blocks, int64_t texts, int64_t width, int64_t count);
void text_blocks_release(struct text_blocks *blocks);
/* The text has no tokens any more. */
void text_blocks_clear(struct text_blocks *blocks, int64_t text);
/* What ls_decoder_share and ls_decoder_reserve do. */
void text_blocks_share(struct text_blocks *blocks, int64_t from, int64_t to, int64_t tokens);
bool text_blocks_reserve(struct text_blocks *blocks, int64_t text, int64_t tokens);

#endif
