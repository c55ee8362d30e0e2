import { createServer, IncomingMessage, type Server, ServerResponse } from 'node:http';
import { connect, Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { newKeyRecord } from '../../../src/auth/keys.ts';
import { UserRoles } from '../../../src/auth/users.ts';
import {
  DASHBOARD_EVENT_INTERVAL_MS,
  DASHBOARD_PROXIED_EVENTS_MAX,
} from '../../../src/core/constants.ts';
import { EventStreams } from '../../../src/observe/dashboard/event-streams.ts';
import { type Session, Sessions } from '../../../src/observe/dashboard/sessions.ts';
import type { Snapshot } from '../../../src/observe/dashboard/snapshot.ts';
import { Registry } from '../../../src/registry/registry.ts';
import { DataDirectory } from '../../../src/registry/store/directory.ts';
import { SqliteStore } from '../../../src/registry/store/sqlite.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { listen } from '../../support/http.ts';
import { waitUntil } from '../../support/server.ts';

/** So large that the buffers of the kernel are full after a few events. */
const LARGE = { namespaces: [], latency: Array(1_000_000).fill(1) } as unknown as Snapshot;

const read = () => ({ nowMs: 0, at: [], latency: [] });
const minutes = { current: 0, read, readHour: read };

describe('an event stream', () => {
  const own = useDataDirectory([]);
  let server: Server;
  let port: number;
  let samples: number;
  let streams: EventStreams;
  let openStreams: number;
  let session: Session;
  let sessions: Sessions;
  beforeEach(async () => {
    const directory = DataDirectory.open(own.dataDir);
    const store = SqliteStore.open(directory);
    const registry = new Registry(store);
    registry.addConfiguredKey(newKeyRecord('a-key-of-the-test', 'k', ['*'], 0, null));
    store.close();
    directory.close();
    samples = 0;
    openStreams = 0;
    const sample = () => {
      samples++;
      return LARGE;
    };
    streams = new EventStreams({ sample, reset: () => {} }, minutes, () => {});
    const clock = { nowMs: () => 0, monotonicMs: () => 0 };
    sessions = new Sessions(registry, new UserRoles(undefined), clock, () => {});
    session = sessions.signIn('a-key-of-the-test').session;
    server = createServer((_req, res) => {
      openStreams++;
      res.once('close', () => openStreams--);
      streams.open(session, res, {}, sessions);
    });
    port = await listen(server);
  });
  afterEach(() => {
    server.closeAllConnections();
    server.close();
  });
  const request = () => {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    return socket;
  };

  test('is closed if its client does not read', async () => {
    const socket = request().pause();
    await waitUntil('it is open', () => openStreams === 1);
    await waitUntil('it is closed', () => openStreams === 0);
    expect(session.isWatching).toBe(false);
    socket.destroy();
  });

  test('of a user of a proxy is ended for a new request; that of a key is not', () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const snapshot = { namespaces: [] } as unknown as Snapshot;
    const sampler = { sample: () => snapshot, reset: () => {} };
    const small = new EventStreams(sampler, minutes, () => {});
    const open = (of: Session) => {
      const res = new ServerResponse(new IncomingMessage(new Socket()));
      const written: string[] = [];
      res.write = (text: string) => written.push(text) > 0;
      res.end = (text?: unknown) => {
        written.push(String(text));
        return res;
      };
      small.open(of, res, {}, sessions);
      return written;
    };
    const user = sessions.signInUser('ann').session;
    const [ofUser, ofKey] = [open(user), open(session)];
    vi.advanceTimersByTime((DASHBOARD_PROXIED_EVENTS_MAX - 2) * DASHBOARD_EVENT_INTERVAL_MS);
    // The minutes, which open the stream, come before the events.
    expect([ofUser.length, user.isWatching]).toEqual([DASHBOARD_PROXIED_EVENTS_MAX, true]);
    vi.advanceTimersByTime(DASHBOARD_EVENT_INTERVAL_MS);
    expect(ofUser.at(-1)).toMatch(/^event: renew\ndata: \{"reason":/);
    expect([user.isWatching, session.isWatching]).toEqual([false, true]);
    vi.advanceTimersByTime(10 * DASHBOARD_EVENT_INTERVAL_MS);
    expect(ofKey.at(-1)).toMatch(/^event: snapshot/);
    small.end(session, 'replaced', 'the test is over');
  });

  test('stays open for a client that reads, and without one there are no snapshots', async () => {
    const started = vi.spyOn(globalThis, 'setInterval');
    const ended = vi.spyOn(globalThis, 'clearInterval');
    onTestFinished(() => {
      for (const spy of [started, ended]) spy.mockRestore();
    });
    const socket = request().resume();
    await waitUntil('there are some snapshots', () => samples > 4);
    expect([openStreams, session.isWatching]).toEqual([1, true]);
    socket.destroy();
    await waitUntil('it is closed', () => openStreams === 0);
    const at = started.mock.calls.findIndex(([, ms]) => ms === DASHBOARD_EVENT_INTERVAL_MS);
    expect(ended).toHaveBeenCalledWith(started.mock.results[at].value);
  });
});
