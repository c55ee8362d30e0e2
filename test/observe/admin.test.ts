import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADMIN_CONNECTIONS_FOR_PROBES, ADMIN_CONNECTIONS_MAX } from '../../src/core/constants.ts';
import { AdminServer } from '../../src/observe/admin.ts';
import { sendToAdmin as sendTo } from '../support/dashboard.ts';
import { sendUntilClosed } from '../support/raw-connection.ts';
import { waitUntil } from '../support/server.ts';

const WORKERS = { configured: 1, running: 1, replaced: 0 };
const PROBES = ['/livez', '/readyz', '/metrics'];

const admin = new AdminServer(['127.0.0.1', 'weir.internal'], 'on');
let port: number;
beforeAll(async () => {
  port = await admin.listen('127.0.0.1', 0);
});
afterAll(() => admin.close());

async function sendToAdmin(path: string, headers: Record<string, string> = {}, method = 'GET') {
  const sent = { path, headers, method };
  const { status, headers: received, text } = await sendTo(`http://127.0.0.1:${port}`, sent);
  return { status, length: received['content-length'], body: text };
}

describe('the admin port', () => {
  test('shows that the process runs, and whether checks are answered', async () => {
    for (const [state, status] of [
      ['starting', 503],
      ['ready', 200],
      ['draining', 503],
    ] as const) {
      admin.state = state;
      const body = JSON.stringify({ status: state });
      expect(await sendToAdmin('/readyz')).toMatchObject({ status, body });
      expect((await sendToAdmin('/livez')).status).toBe(200);
    }
  });

  test('answers HEAD with the head of GET, length included, and no body', async () => {
    admin.sources = {
      faults: { current: () => [], past: () => [] },
      engine: { stats: () => ({ slots: 1, queueDepths: [0], workers: WORKERS }) },
      metrics: { contentType: 'text/plain', text: async () => '# é\n' },
    };
    for (const path of ['/livez', '/readyz', '/metrics', '/nothing']) {
      const get = await sendToAdmin(path);
      const head = await sendToAdmin(path, {}, 'HEAD');
      expect([path, get.length]).toEqual([path, String(Buffer.byteLength(get.body))]);
      expect(head).toEqual({ ...get, body: '' });
    }
    admin.sources = undefined;
  });

  test('lists every path with its description at /, and names the same paths in a 404', async () => {
    const list = await sendToAdmin('/');
    expect(list.status).toBe(200);
    const listed = JSON.parse(list.body).paths as { path: string; description: string }[];
    const paths = listed.map(({ path }) => path);
    expect(paths).toEqual(['/', '/livez', '/readyz', '/metrics']);
    expect(listed.filter(({ description }) => description === '')).toEqual([]);
    const missing = await sendToAdmin('/nothing');
    expect([missing.status, JSON.parse(missing.body)]).toEqual([
      404,
      { error: `there is no /nothing; paths: ${paths.join(', ')}` },
    ]);
  });

  test('answers a 500 if the dashboard cannot be loaded, and goes on', async () => {
    const engine = { stats: () => ({ queueDepths: [], workers: WORKERS }) };
    const metrics = { contentType: 'text/plain', text: async () => '' };
    const loadPages = () => Promise.reject(new Error('a file is missing'));
    admin.sources = { engine, metrics, faults: { current: () => [], past: () => [] }, loadPages };
    for (const path of ['/', '/dashboard/session']) {
      const response = await sendToAdmin(path, { Accept: 'text/html' });
      expect([response.status, JSON.parse(response.body)]).toEqual([
        500,
        { error: 'the dashboard cannot be loaded: a file is missing' },
      ]);
    }
    admin.sources = undefined;
    expect((await sendToAdmin('/', { Accept: 'text/html' })).status).toBe(503);
  });

  test('accepts no other method than GET and HEAD', async () => {
    for (const path of ['/', ...PROBES]) {
      expect([path, (await sendToAdmin(path, {}, 'POST')).status]).toEqual([path, 405]);
    }
  });

  test('answers probes under any Host or Origin, and with a query', async () => {
    for (const host of ['weir:7071', 'weir.default.svc', 'evil.example', '10.1.2.3:1']) {
      for (const path of PROBES) {
        const headers = { Host: host, Origin: 'http://evil.example' };
        const status = path === '/livez' ? 200 : 503;
        for (const query of ['', '?', '?verbose', '?a=/../b']) {
          const response = await sendToAdmin(path + query, headers);
          expect([host, path, query, response.status]).toEqual([host, path, query, status]);
        }
      }
    }
  });

  test('rejects two headers Host on every path, and closes the connection', async () => {
    for (const path of ['/', '/livez', '/readyz', '/metrics', '/dashboard/session', '/nothing']) {
      for (const second of ['localhost', 'evil.example']) {
        const head = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nhOST: ${second}\r\n\r\n`;
        const { text, isClosed } = await sendUntilClosed(port, [head], 20_000);
        expect([path, text.split('\r\n')[0], isClosed]).toEqual([
          path,
          'HTTP/1.1 400 Bad Request',
          true,
        ]);
      }
    }
  });

  test('answers HTTP/1.0 without Host', async () => {
    for (const path of PROBES) {
      const { text, isClosed } = await sendUntilClosed(
        port,
        [`GET ${path} HTTP/1.0\r\n\r\n`],
        20_000,
      );
      expect([path, isClosed, text.split('\r\n')[0]]).toEqual([
        path,
        true,
        `HTTP/1.1 ${path === '/livez' ? '200 OK' : '503 Service Unavailable'}`,
      ]);
    }
  });

  test('rejects an unknown Host for all but probes; addresses and configured names are accepted', async () => {
    for (const path of ['/', '/nothing', '/livez/', '/metrics/../']) {
      for (const host of ['evil.example', 'evil.example:7071', '127.0.0.1.evil.example', 'weir']) {
        expect([host, (await sendToAdmin(path, { Host: host })).status]).toEqual([host, 403]);
      }
    }
    const accepted = ['localhost', `LOCALHOST:${port}`, '127.0.0.1', '[::1]:7071', '10.1.2.3'];
    for (const host of [...accepted, 'weir.internal', 'Weir.Internal:80']) {
      expect([host, (await sendToAdmin('/', { Host: host })).status]).toEqual([host, 200]);
    }
  });

  test('rejects another Origin than its own for all but probes', async () => {
    const host = `127.0.0.1:${port}`;
    for (const origin of ['http://evil.example', 'null', `https://${host}`]) {
      expect((await sendToAdmin('/', { Host: host, Origin: origin })).status).toBe(403);
    }
    expect((await sendToAdmin('/', { Host: host, Origin: `http://${host}` })).status).toBe(200);
  });

  test('is not shared with another process', async () => {
    await expect(new AdminServer([], 'off').listen('127.0.0.1', port)).rejects.toThrow(
      'EADDRINUSE',
    );
  });
});

/** Opens idle connections. Each has promises for when it is open and when it is closed. */
function openIdleConnections(count: number) {
  return Array.from({ length: count }, () => {
    const socket = connect(port, '127.0.0.1').resume();
    socket.on('error', () => {});
    const opened = new Promise((resolve) => socket.once('connect', resolve));
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    return { socket, opened, closed };
  });
}

describe('connections of the admin port', () => {
  const ordinary = ADMIN_CONNECTIONS_MAX - ADMIN_CONNECTIONS_FOR_PROBES;

  test('above the number for all paths serve probes only, and say so', async () => {
    const idle = openIdleConnections(ordinary);
    await Promise.all(idle.map(({ opened }) => opened));
    const rejected = await sendUntilClosed(
      port,
      ['GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'],
      20_000,
    );
    expect(rejected.isClosed).toBe(true);
    const [head, body] = rejected.text.split('\r\n\r\n');
    expect(head).toContain('HTTP/1.1 503 Service Unavailable');
    expect(head).toContain('\r\nConnection: close');
    expect(head).toContain('\r\nRetry-After: 1');
    expect(JSON.parse(body).error).toContain('serves /livez, /readyz, /metrics only');
    const probe = 'GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const other = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
    const later = await sendUntilClosed(port, [probe, probe, other, probe], 20_000, 50);
    expect([later.statuses, later.isClosed]).toEqual([[200, 200, 503], true]);
    for (const { socket } of idle.slice(0, 1)) socket.destroy();
    await waitUntil('a slot is free again', async () => (await sendToAdmin('/')).status === 200);
    for (const { socket } of idle) socket.destroy();
    await Promise.all(idle.map(({ closed }) => closed));
  });

  test('that request probes leave the slots for other paths free', async () => {
    const probing = openIdleConnections(ordinary);
    const responses = probing.map(({ socket }) => {
      socket.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
      return new Promise<string>((resolve) => socket.once('data', (data) => resolve(String(data))));
    });
    for (const response of await Promise.all(responses)) {
      expect(response).toContain('HTTP/1.1 200 OK');
    }
    expect((await sendToAdmin('/')).status).toBe(200);
    for (const { socket } of probing) socket.destroy();
    await Promise.all(probing.map(({ closed }) => closed));
  });

  test('are bounded: a new one replaces the one without a request for the longest time', async () => {
    const old = openIdleConnections(1);
    await old[0].opened;
    const busy = openIdleConnections(1);
    busy[0].socket.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
    await busy[0].opened;
    const rest = openIdleConnections(ADMIN_CONNECTIONS_MAX - 2);
    await Promise.all(rest.map(({ opened }) => opened));
    let closed = 0;
    for (const connection of [...busy, ...rest]) void connection.closed.then(() => closed++);
    expect((await sendToAdmin('/readyz')).status).toBe(503);
    await old[0].closed;
    expect(closed).toBe(0);
    for (const { socket } of [...busy, ...rest]) socket.destroy();
    await Promise.all(rest.map((connection) => connection.closed));
  });
});
