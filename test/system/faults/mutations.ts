/** Hostile bytes: known attacks, and random mutations of them from a seed. */

export type RandomBelow = (below: number) => number;

/** Texts without blanks. */
const words = (list: string) => list.split(' ');

export const pick = <T>(below: RandomBelow, values: readonly T[]): T =>
  values[below(values.length)];

/** Texts that have broken other services. All are well-formed Unicode. */
export const HOSTILE_STRINGS: readonly string[] = [
  '',
  ' ',
  '\t\r\n',
  '\u0000',
  'a\u0000b',
  '\u0001\u0002\u001f\u007f\u0080\u009f',
  '\ufeff',
  '\ufeffa',
  '\ufffd',
  '\ufffe\uffff',
  '\u2028\u2029\u0085',
  '\u200b\u200c\u200d\u2060',
  '\u202e\u0623\u0644\u202c\u200f',
  'e\u0301',
  'é',
  'E',
  'Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢',
  '\u0301'.repeat(200),
  '👩‍👩‍👧‍👦🏳️‍🌈🇩🇪',
  '😀'.repeat(512),
  '\u{10ffff}',
  'ﬃ ſ İ ı ß ẞ Å Å',
  ...words('__proto__ constructor prototype toString hasOwnProperty __defineGetter__'),
  ...words('null undefined NaN -0 true 0x10 1e400'),
  "' OR '1'='1",
  "'; DROP TABLE namespaces; --",
  '" or ""="',
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  '$(reboot)',
  '; rm -rf /',
  '|| true',
  ...words('`id` %s%n%x%d {0}{{7*7}}#{7*7}'),
  ...words('../../../../etc/passwd ..\\..\\boot.ini %00%2e%2e%2f file:///dev/zero CON'),
  'a\r\nX-Injected: 1\r\n\r\n',
  ...words('\\ \\\\u0041 " {"identifier":"a"}'),
  ...words('* ** a*b ?[a-z]+(x)+$ default rlns a:b a/b'),
  'x'.repeat(512),
];

/** JSON tokens, valid and invalid. */
const JSON_TOKENS: readonly string[] = [
  ...words('{ } [ ] , : " \\ null true false NaN Infinity'),
  ...words('-0 -1 0 1.0 1e3 1e400 -1e400 0.1 1. .5 01 +1 0x10 1_000 0.30000000000000004e1'),
  ...words('9007199254740991 9007199254740992 9007199254740993 18446744073709551616'),
  '9'.repeat(400),
  ...words('"\\ud800" "\\udc00\\ud800" "\\u0000" \\u0041'),
  ...words('"__proto__":{"limit":1}, "constructor":{"prototype":{}}, "identifier":"twice",'),
  ...words('"limit":7, "cost":0, "cost":2, "duration":1000, "async":true, "namespace":"other",'),
  '/* */',
  '//\n',
  "'",
  ' ',
  '\ufeff',
  '\u00a0',
  '\u2028',
  '['.repeat(300),
  '{"a":'.repeat(300),
  ']'.repeat(300),
  'A'.repeat(3_000),
  '*a'.repeat(16),
  ...HOSTILE_STRINGS.slice(0, 40),
];

/** Invalid UTF-8: overlong, surrogates, truncated, above U+10FFFF, and bytes that never occur. */
const INVALID_UTF8: readonly Uint8Array[] = words(
  'c080 c1bf e080af f08080af eda080 edbfbf f4908080 e282 f09f98 80 ff feff 00',
).map((bytes) => Buffer.from(bytes, 'hex'));

/** Pieces of a request head, valid and invalid. */
const HEAD_TOKENS: readonly string[] = [
  ...['\r\n', '\n', '\r', '\r\n\r\n', ' ', '\t', '\u0000'],
  ...words(': %00 %2e%2e/ // ?a=b # * HTTP/1.0 HTTP/1.1 HTTP/2.0 HTTP/9.9'),
  ...['GET ', 'CONNECT '],
  'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  'Content-Length: 5\r\n',
  'Content-Length: 0\r\n',
  'Content-Length: -1\r\n',
  'Content-Length: 18446744073709551617\r\n',
  'Content-Length: 1, 2\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: identity\r\n',
  'Transfer-Encoding : chunked\r\n',
  'Transfer-Encoding:\tchunked, chunked\r\n',
  'Expect: 100-continue\r\n',
  'Expect: nothing\r\n',
  'Connection: close\r\n',
  'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n',
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n',
  'Host: other\r\n',
  'Authorization: Bearer other\r\n',
  'Content-Type: text/plain\r\n',
  'X: folded\r\n more\r\n',
  ': no name\r\n',
  'X-Long: '.concat('v'.repeat(2_000), '\r\n'),
  'ffffffffffffffff\r\n',
  '0\r\n\r\n',
  '1;ext="\n"\r\n',
];

type Tokens = readonly Uint8Array[];
const encodeTexts = (texts: readonly string[]) => texts.map((text) => Buffer.from(text));
export const JSON_TOKEN_SET: Tokens = [...encodeTexts(JSON_TOKENS), ...INVALID_UTF8];
export const HEAD_TOKEN_SET: Tokens = encodeTexts(HEAD_TOKENS);

/** Flips, replaces, cuts, copies and inserts bytes, or truncates, one to three times. */
export function mutate(below: RandomBelow, tokens: Tokens, bytes: Uint8Array): Buffer {
  let result = Buffer.from(bytes);
  const put = (at: number, skip: number, piece: Uint8Array) => {
    result = Buffer.concat([result.subarray(0, at), piece, result.subarray(at + skip)]);
  };
  const change = (at: number, byte: number) => put(at, 1, Uint8Array.of(byte));
  for (let changes = 1 + below(3); changes > 0; changes--) {
    const at = below(result.length + 1);
    const length = Math.min(1 + below(20), result.length - at);
    switch (below(8)) {
      case 0:
        change(at, (result[at] ?? 0) ^ (1 << below(8)));
        break;
      case 1:
        change(at, below(256));
        break;
      case 2:
        put(at, length, Buffer.alloc(0));
        break;
      case 3:
        put(at, 0, Buffer.from(result.subarray(at, at + length)));
        break;
      case 4: {
        const from = below(result.length + 1);
        put(at, length, Buffer.from(result.subarray(from, from + length)));
        break;
      }
      case 5:
      case 6:
        put(at, below(2) * length, pick(below, tokens));
        break;
      case 7:
        if (below(4) === 0) result = result.subarray(0, at);
        else put(at, 0, pick(below, tokens));
        break;
    }
  }
  return result;
}

/** Swaps two lines of a head, or repeats one. The first line stays. */
export function shuffleLines(below: RandomBelow, head: string): string {
  const [first, ...lines] = head.split('\r\n');
  const [a, b] = [below(lines.length), below(lines.length)];
  if (below(3) === 0) lines.splice(a, 0, lines[b]);
  else [lines[a], lines[b]] = [lines[b], lines[a]];
  return [first, ...lines].join('\r\n');
}

const REQUEST_LINE = /^[A-Z]{1,20} \/[\x21-\x7e]* HTTP\/1\.1$/;
const HEADER_LINE = /^[\w!#$%&'*+.^`|~-]+:[ \t]*[\x20-\x7e\t]*$/;

/**
 * Whether bytes are exactly one request with an unambiguous end. It is stricter than HTTP: every
 * HTTP server has to respond to a request that it accepts.
 */
export function isSingleValidRequest(bytes: Buffer): boolean {
  const text = bytes.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  if (end < 0 || end > 16_000) return false;
  const [first, ...lines] = text.slice(0, end).split('\r\n');
  if (!REQUEST_LINE.test(first) || !lines.every((line) => HEADER_LINE.test(line))) return false;
  const of = (name: string) => {
    return lines.filter((line) => line.toLowerCase().startsWith(`${name}:`));
  };
  if (of('host').length !== 1 || !/:[ \t]*\S/.test(of('host')[0])) return false;
  if (of('transfer-encoding').length > 0 || of('content-length').length !== 1) return false;
  if (/^(CONNECT|HEAD) /.test(first) || lines.length > 50) return false;
  const length = /^[^:]+:[ \t]*(\d{1,6})[ \t]*$/.exec(of('content-length')[0])?.[1];
  return length !== undefined && Number(length) === text.length - end - 4;
}
