/* ops/tree.h - the tree of ls_tree_split walked front to back with a stack.
 *
 * Push leaf i's value, then merge the two uppermost entries ops_tree_merges(i, n) times (left +=
 * right). After leaf n - 1 one entry is left, and every addition was one of the tree's: below the
 * last leaf the counter's carries close complete subtrees of power-of-two size; the last leaf folds
 * what is left from the right, which is where ls_tree_split puts the incomplete part. The stack
 * never holds more than log2(n) + 2 entries. */
#ifndef OPS_TREE_H
#define OPS_TREE_H

#include <stdint.h>

static inline int ops_tree_merges(int64_t i, int64_t n)
{
    return i + 1 < n ? __builtin_ctzll((uint64_t)i + 1) : __builtin_popcountll((uint64_t)i);
}

#endif
