import { describe, expect, test } from 'vitest';
import { visibleParts, visibleText } from '../../../src/dashboard/common/visible-text.ts';

describe('a text from a client', () => {
  test.each([
    ['user_1', 'user_1'],
    ['Zoë Müller 日本 😀', 'Zoë Müller 日本 😀'],
    ['<b>&amp;', '<b>&amp;'],
  ])('without hidden characters is shown as it is: %s', (text, shown) => {
    expect(visibleText(text)).toBe(shown);
    expect(visibleParts(text)).toEqual([{ text }]);
  });

  test.each([
    ['overridden direction', 'a\u202eb\u202c', 'a[U+202E]b[U+202C]'],
    ['isolated direction', '\u2066a\u2069', '[U+2066]a[U+2069]'],
    ['control characters', 'a\0b\nc\u007fd\u0085', 'a[U+0000]b[U+000A]c[U+007F]d[U+0085]'],
    ['zero width', 'a\u200bb\u200dc\ufeff', 'a[U+200B]b[U+200D]c[U+FEFF]'],
    ['other blanks', 'a\u00a0b\u2003c\u3000', 'a[U+00A0]b[U+2003]c[U+3000]'],
    ['blanks at an end', ' a ', '[U+0020]a[U+0020]'],
    ['several blanks', 'a  b', 'a[U+0020][U+0020]b'],
    ['ignorable characters', 'a\u00ad\u034f\u3164b', 'a[U+00AD][U+034F][U+3164]b'],
    ['tags', 'a\u{e0041}b', 'a[U+E0041]b'],
    ['a lone surrogate', 'a\ud800b', 'a[U+D800]b'],
    ['private use', '\ue000', '[U+E000]'],
  ])('shows %s by code points', (_name, text, shown) => {
    expect(visibleText(text)).toBe(shown);
  });

  test('that is empty has no parts', () => {
    expect(visibleParts('')).toEqual([]);
  });
});
