import { once } from 'node:events';
import { connect, type OutgoingHttpHeaders } from 'node:http2';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { GRPC_HEADERS_MAX } from '../../../src/core/constants.ts';
import { ConnectionError, ERROR_CODE } from '../../../src/rls/transport/frames.ts';
import { type HeaderBlock, HeaderDecoder } from '../../../src/rls/transport/hpack.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import { callHeaders, encodeHeaders, FRAME, frame, framesAt } from '../../support/rls/grpc.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';

/** A decoder of blocks in hexadecimal, which counts those that are not remembered. */
function newDecoder() {
  let decoded = 0;
  const decoder = new HeaderDecoder((block: HeaderBlock) => {
    decoded++;
    return block;
  });
  const decode = (block: string | Buffer): HeaderBlock => {
    const bytes = typeof block === 'string' ? Buffer.from(block.replaceAll(' ', ''), 'hex') : block;
    return decoder.decode(bytes, 0, bytes.length);
  };
  return { decode, count: () => decoded };
}

describe('the examples of RFC 7541 are decoded', () => {
  test.each([
    [
      'without Huffman codes (C.3)',
      [
        '8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d',
        '8286 84be 5808 6e6f 2d63 6163 6865',
        '8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65',
      ],
    ],
    [
      'with Huffman codes (C.4)',
      [
        '8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff',
        '8286 84be 5886 a8eb 1064 9cbf',
        '8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf',
      ],
    ],
  ])('%s', (_name, blocks) => {
    const { decode } = newDecoder();
    const paths = ['/', '/', '/index.html'];
    for (const [i, block] of blocks.entries()) {
      expect(decode(block)).toMatchObject({ method: 'GET', path: paths[i], isMalformed: false });
    }
  });

  test('literals without the table (C.2)', () => {
    const { decode } = newDecoder();
    expect(decode('040c 2f73 616d 706c 652f 7061 7468').path).toBe('/sample/path');
    expect(decode('1008 7061 7373 776f 7264 0673 6563 7265 74').isMalformedTrailers).toBe(false);
    expect(decode('82').method).toBe('GET');
    // They are not in the table.
    expect(() => decode('be')).toThrow(ConnectionError);
  });
});

test('a decoder agrees with a model of the table', () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  const integer = (value: number, bits: number, flags: number) => {
    const max = 2 ** bits - 1;
    if (value < max) return [flags | value];
    const bytes = [flags | max];
    let rest = value - max;
    for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
    return [...bytes, rest];
  };
  const text = (value: string) => [...integer(value.length, 7, 0), ...Buffer.from(value)];
  for (let trial = 0; trial < trialCount(30, 1_000); trial++) {
    const { decode } = newDecoder();
    /** Values of content-type, or of a header without meaning. */
    let table: { value: string; isType: boolean }[] = [];
    let maxBytes = 4_096;
    const size = () =>
      table.reduce((sum, { value, isType }) => {
        return sum + 32 + value.length + (isType ? 12 : 3);
      }, 0);
    const evict = () => {
      while (size() > maxBytes) table.pop();
    };
    for (let block = 0; block < 40; block++) {
      const bytes: number[] = [];
      let expected = '';
      if (below(8) === 0) {
        maxBytes = below(2) === 0 ? 4_096 : below(1_000);
        bytes.push(...integer(maxBytes, 5, 0x20));
        evict();
      }
      for (let field = below(6); field >= 0; field--) {
        const value = `${below(1_000)}`.repeat(1 + below(40));
        const isType = below(2) === 0;
        const action = below(3);
        if (action === 0 && table.length > 0) {
          const index = below(table.length);
          bytes.push(...integer(62 + index, 7, 0x80));
          if (table[index].isType) expected = table[index].value;
          continue;
        }
        const [bits, flags] = action === 1 ? [6, 0x40] : [4, below(2) * 16];
        const known = table.findIndex((entry) => entry.isType === isType);
        if (known >= 0 && below(2) === 0) bytes.push(...integer(62 + known, bits, flags));
        else if (isType && below(2) === 0) bytes.push(...integer(31, bits, flags));
        else bytes.push(flags, ...text(isType ? 'content-type' : 'x-a'));
        bytes.push(...text(value));
        if (isType) expected = value;
        if (action !== 1) continue;
        table = [{ value, isType }, ...table];
        evict();
      }
      // Twice the same bytes have the same meaning only if they leave the table as it is.
      const { contentType } = decode(Buffer.from(bytes));
      expect({ seed, trial, block, contentType }).toEqual({
        seed,
        trial,
        block,
        contentType: expected,
      });
      if (table.length > 0 && table.length < 60) {
        const oldest = decode(Buffer.from([0x80 + 61 + table.length]));
        const { value, isType } = table[table.length - 1];
        expect(oldest.contentType).toBe(isType ? value : '');
      }
    }
  }
});

test('a decoder understands what nghttp2 encodes', async () => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => sockets.push(socket)).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  session.on('error', () => {});
  onTestFinished(() => session.destroy());
  await once(session, 'connect');
  await waitUntil('the connection is accepted', () => sockets.length === 1);
  const [socket] = sockets;
  onTestFinished(() => void socket.destroy());
  // Its preface is removed by reading frames after it.
  const [first] = (await once(socket, 'data')) as [Buffer];
  const frames = framesAt(socket);
  socket.unshift(first.subarray(24));
  socket.write(Buffer.concat([frame(FRAME.SETTINGS, 0, 0), frame(FRAME.SETTINGS, 1, 0)]));
  const seed = newSeed();
  const below = seededRandom(seed);
  const random = () => {
    const alphabet = below(2) === 0 ? 26 : 94;
    const codes = Array.from(
      { length: below(60) },
      () => (alphabet === 26 ? 97 : 33) + below(alphabet),
    );
    const text = String.fromCharCode(...codes);
    // Within a longer text of short codes, each byte has its Huffman code.
    return below(3) > 0 ? text : `${'e'.repeat(40)}${String.fromCharCode(128 + below(128))}e`;
  };
  const values = Array.from({ length: 40 }, random);
  const sent: OutgoingHttpHeaders[] = [];
  for (let i = 0; i < trialCount(500, 5_000); i++) {
    const value = () => (below(3) === 0 ? random() : values[below(values.length)]);
    const headers: OutgoingHttpHeaders = {
      ':method': ['POST', 'GET', 'PUT'][below(3)],
      ':path': `/${value()}`,
      'content-type': `a${value()}a`,
    };
    for (let count = below(5); count > 0; count--) headers[`x-${below(30)}`] = `a${value()}a`;
    sent.push(headers);
    const stream = session.request(headers, { endStream: true });
    stream.on('error', () => {});
    if (i % 50 === 0) await new Promise(setImmediate);
  }
  const { decode } = newDecoder();
  const blocks = () => frames.filter(({ type }) => type === FRAME.HEADERS);
  await waitUntil('all headers have arrived', () => blocks().length === sent.length);
  for (const [i, { payload, flags }] of blocks().entries()) {
    // A dependency of 5 bytes is before the headers.
    const block = decode(payload.subarray((flags & 32) === 0 ? 0 : 5));
    const { ':method': method, ':path': path, 'content-type': contentType } = sent[i];
    expect({ seed, i, ...block }).toMatchObject({
      seed,
      i,
      method,
      path,
      contentType,
      isMalformed: false,
    });
  }
});

describe('a block that is no HPACK ends the connection', () => {
  test.each([
    ['the index 0', '80'],
    ['an index beyond the table', 'be'],
    ['a name beyond the table', '7f 00 01 61'],
    ['a number of more than 21 bits', 'ff 80 80 80 01'],
    ['a number that ends after it', 'ff 80'],
    ['a table that is too large', '3f e2 1f'],
    ['a change of the table after a header', '82 20'],
    ['a name that ends after it', '00 05 61'],
    ['a value that ends after it', '00 01 61 05 61'],
    ['no value', '00 01 61'],
    ['an invalid Huffman code', '00 01 61 81 00'],
    ['an invalid Huffman code in its name', '00 84 ff ff ff ff 01 61'],
  ])('%s', (_name, block) => {
    const error = (() => {
      try {
        return newDecoder().decode(block);
      } catch (thrown) {
        return thrown;
      }
    })();
    expect(error).toBeInstanceOf(ConnectionError);
    expect(error).toMatchObject({ code: ERROR_CODE.COMPRESSION_ERROR });
  });

  test('but the largest table is accepted', () => {
    expect(newDecoder().decode('3f e1 1f 82').method).toBe('GET');
  });
});

describe('headers', () => {
  const valid = callHeaders();
  const without = (name: string) => valid.filter(([other]) => other !== name);

  test.each([
    ['as clients send them', valid, true],
    ['with content-length', [...valid, ['content-length', '5']], true],
    [
      'with content-length twice',
      [...valid, ['content-length', '5'], ['content-length', '5']],
      true,
    ],
    ['without te', without('te'), true],
    ['without :authority', without(':authority'), true],
    ['without :method', without(':method'), false],
    ['without :scheme', without(':scheme'), false],
    ['without :path', without(':path'), false],
    ['with an empty :path', [...without(':path'), [':path', '']], false],
    ['with :path twice', [[':path', '/'], ...valid], false],
    ['with a pseudo header after another', [['a', 'b'], ...valid], false],
    ['with an unknown pseudo header', [[':other', ''], ...valid], false],
    ['with :status', [[':status', '200'], ...valid], false],
    ['with a name in upper case', [...valid, ['X-a', 'b']], false],
    ['with an empty name', [...valid, ['', 'b']], false],
    ['with a space in a name', [...valid, ['x a', 'b']], false],
    ['with a colon in a name', [...valid, ['x:a', 'b']], false],
    ['with a line feed in a value', [...valid, ['x', 'a\nb']], false],
    ['with NUL in a value', [...valid, ['x', 'a\0b']], false],
    ['with a space before a value', [...valid, ['x', ' b']], false],
    ['with a tab after a value', [...valid, ['x', 'b\t']], false],
    ['with connection', [...valid, ['connection', 'close']], false],
    ['with keep-alive', [...valid, ['keep-alive', '1']], false],
    ['with proxy-connection', [...valid, ['proxy-connection', 'close']], false],
    ['with transfer-encoding', [...valid, ['transfer-encoding', 'chunked']], false],
    ['with upgrade', [...valid, ['upgrade', 'h2c']], false],
    ['with te: gzip', [...without('te'), ['te', 'gzip']], false],
    [
      'with two content-lengths',
      [...valid, ['content-length', '5'], ['content-length', '6']],
      false,
    ],
    ['with a content-length below 0', [...valid, ['content-length', '-1']], false],
    ['with a content-length of letters', [...valid, ['content-length', 'a']], false],
  ] as [string, [string, string][], boolean][])('%s are judged', (_name, list, isValid) => {
    const block = newDecoder().decode(encodeHeaders(list));
    expect(block.isMalformed).toBe(!isValid);
    if (isValid) expect(block).toMatchObject({ method: 'POST', contentType: 'application/grpc' });
  });

  test('of trailers need no pseudo headers, and may have none', () => {
    const { decode } = newDecoder();
    expect(decode(encodeHeaders([['x', 'a']])).isMalformedTrailers).toBe(false);
    expect(decode(encodeHeaders([[':path', '/']])).isMalformedTrailers).toBe(true);
    expect(decode(encodeHeaders([['X', 'a']])).isMalformedTrailers).toBe(true);
    expect(decode('').isMalformedTrailers).toBe(false);
  });

  test('are too large by their number or size, and leave the table in sync', () => {
    const { decode } = newDecoder();
    const many = (count: number) => encodeHeaders(Array.from({ length: count }, () => ['x', 'a']));
    expect(decode(many(GRPC_HEADERS_MAX)).isTooLarge).toBe(false);
    expect(decode(many(GRPC_HEADERS_MAX + 1)).isTooLarge).toBe(true);
    // A value of 4000 bytes, which is added to the table, five times.
    const value = Buffer.concat([Buffer.from('5f7fa11e', 'hex'), Buffer.alloc(4_000, 97)]);
    expect(value.length).toBe(4_004);
    const block = Buffer.concat([value, Buffer.from('bebebebe', 'hex')]);
    expect(decode(block)).toMatchObject({ isTooLarge: true });
    expect(decode('be').contentType).toBe('a'.repeat(4_000));
  });
});

describe('a block with the same bytes', () => {
  test('is decoded once while the table stays', () => {
    const { decode, count } = newDecoder();
    const block = encodeHeaders(callHeaders());
    const first = decode(block);
    for (let i = 0; i < 3; i++) expect(decode(Buffer.from(block))).toBe(first);
    expect(count()).toBe(1);
  });

  test('has another meaning with another table', () => {
    const { decode, count } = newDecoder();
    const typed = (letter: string) => `5f 01 ${Buffer.from(letter).toString('hex')}`;
    decode(typed('a'));
    expect([decode('be').contentType, decode('be').contentType]).toEqual(['a', 'a']);
    decode(typed('b'));
    expect([decode('be').contentType, decode('bf').contentType]).toEqual(['b', 'a']);
    // The table becomes empty.
    decode('20');
    expect(() => decode('be')).toThrow(ConnectionError);
    expect(count()).toBe(6);
  });

  test('is found among others, of the same length too', () => {
    const { decode } = newDecoder();
    for (let round = 0; round < 3; round++) {
      for (const path of ['/a', '/b', '/c', '/d', '/ee', '/f']) {
        expect(decode(encodeHeaders(callHeaders(path))).path).toBe(path);
      }
    }
  });
});
