import { request } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADMIN_CONNECTIONS_MAX } from '../../src/limits.ts';
import { Admin } from '../../src/observe/admin.ts';
import { until } from '../support/server.ts';

const admin = new Admin('127.0.0.1');
let port: number;
beforeAll(async () => {
  port = await admin.listen('127.0.0.1', 0);
});
afterAll(() => admin.close());

function ask(path: string, headers: Record<string, string> = {}, method = 'GET') {
  return new Promise<{ status: number; length: string | undefined; body: string }>(
    (resolve, reject) => {
      const req = request({ host: '127.0.0.1', port, path, headers, method }, (res) => {
        let body = '';
        res.on('data', (data) => {
          body += data;
        });
        res.on('end', () => {
          const { statusCode: status = 0, headers } = res;
          resolve({ status, length: headers['content-length'], body });
        });
      });
      req.on('error', reject).end();
    },
  );
}

describe('the admin port', () => {
  test('says that the process runs, and whether it takes checks', async () => {
    for (const [state, status] of [
      ['starting', 503],
      ['ready', 200],
      ['draining', 503],
    ] as const) {
      admin.state = state;
      const body = JSON.stringify({ status: state });
      expect(await ask('/readyz')).toMatchObject({ status, body });
      expect((await ask('/livez')).status).toBe(200);
    }
  });

  test('answers HEAD with the head of GET, length included, and no body', async () => {
    admin.observed = {
      workers: { wanted: 1, running: 1, replaced: 0 },
      metrics: { contentType: 'text/plain', text: async () => '# é\n' },
    };
    for (const path of ['/livez', '/readyz', '/metrics', '/nothing']) {
      const get = await ask(path);
      const head = await ask(path, {}, 'HEAD');
      expect([path, get.length]).toEqual([path, String(Buffer.byteLength(get.body))]);
      expect(head).toEqual({ ...get, body: '' });
    }
    admin.observed = undefined;
  });

  test('knows no other path and no other method', async () => {
    expect((await ask('/')).status).toBe(404);
    expect((await ask('/livez', {}, 'POST')).status).toBe(405);
  });

  test("refuses a foreign Host or Origin; addresses and this machine's name are none", async () => {
    for (const host of ['evil.example', 'evil.example:7071', '127.0.0.1.evil.example']) {
      expect([host, (await ask('/livez', { Host: host })).status]).toEqual([host, 403]);
    }
    for (const host of ['localhost', `LOCALHOST:${port}`, '127.0.0.1', '[::1]:7071', '10.1.2.3']) {
      expect([host, (await ask('/livez', { Host: host })).status]).toEqual([host, 200]);
    }
    const host = `127.0.0.1:${port}`;
    for (const origin of ['http://evil.example', 'null', `https://${host}`]) {
      expect((await ask('/livez', { Host: host, Origin: origin })).status).toBe(403);
    }
    expect((await ask('/livez', { Host: host, Origin: `http://${host}` })).status).toBe(200);
  });

  test('is not shared with another process', async () => {
    await expect(new Admin('127.0.0.1').listen('127.0.0.1', port)).rejects.toThrow('EADDRINUSE');
  });

  test('has so many connections, closes those beyond, and those that do not ask in time', async () => {
    const beyond = 10;
    let open = ADMIN_CONNECTIONS_MAX + beyond;
    const closed = Array.from({ length: open }, () => {
      const socket = connect(port, '127.0.0.1').resume();
      socket.on('error', () => {});
      return new Promise<void>((resolve) => {
        socket.on('close', () => {
          open--;
          resolve();
        });
      });
    });
    await until('those beyond are closed', () => open <= ADMIN_CONNECTIONS_MAX);
    // The others go together, and later.
    expect(open).toBeGreaterThan(0);
    await Promise.all(closed);
    expect((await ask('/livez')).status).toBe(200);
  });
});
