/* What one sees of an SVG picture that this project draws: its texts and its colours. */
#ifndef TEST_SUPPORT_SVG_H
#define TEST_SUPPORT_SVG_H

/* svg: a picture, or what begins with one. Fails the test where two of its texts overlap, or one is
 * cut by the picture's edge, by the estimate of their widths that the pictures are drawn with. */
void assert_svg_texts(const char *svg);

/* Fails the test where the legend has a colour that is not drawn, or the reverse. Swatches of a
 * legend are squares of 14 units without a title. */
void assert_svg_legend(const char *svg);

/* Fails the test where a text with that anchor and class is not in the picture, with its place in
 * *x and *y otherwise. */
void svg_text_place(const char *svg, const char *classes, const char *anchor, const char *text,
                    double *x, double *y);

#endif
