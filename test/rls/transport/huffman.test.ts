import { describe, expect, test } from 'vitest';
import { decodeHuffman } from '../../../src/rls/transport/huffman.ts';

function decode(hex: string): string | undefined {
  const bytes = Buffer.from(hex.replaceAll(' ', ''), 'hex');
  return decodeHuffman(bytes, 0, bytes.length);
}

test.each([
  ['f1e3 c2e5 f23a 6ba0 ab90 f4ff', 'www.example.com'],
  ['a8eb 1064 9cbf', 'no-cache'],
  ['25a8 49e9 5ba9 7d7f', 'custom-key'],
  ['25a8 49e9 5bb8 e8b4 bf', 'custom-value'],
  ['6402', '302'],
  ['aec3 771a 4b', 'private'],
  ['d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff', 'Mon, 21 Oct 2013 20:13:21 GMT'],
  ['9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3', 'https://www.example.com'],
  ['', ''],
  ['ffc7', '\0'],
  ['ffff fff3', '\n'],
  ['ffff fbbf', '\u00ff'],
])('%s is decoded as RFC 7541 says', (hex, text) => {
  expect(decode(hex)).toBe(text);
});

describe('a code that RFC 7541 forbids is rejected', () => {
  test.each([
    ['8 bits of padding', '07ff'],
    ['padding that ends with a zero', '06'],
    ['padding of zeros', '00'],
    ['EOS', 'ffff ffff'],
    ['EOS after a text', '1fff ffff ff'],
    ['the begin of a long code', 'ffff'],
  ])('%s', (_name, hex) => {
    expect(decode(hex)).toBe(undefined);
  });

  test('and the next text is decoded', () => {
    expect(decode('ffff ffff')).toBe(undefined);
    expect(decode('6402')).toBe('302');
  });
});
