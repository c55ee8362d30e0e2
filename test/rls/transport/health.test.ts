import { type ClientReadableStream, credentials, type ServiceError } from '@grpc/grpc-js';
import { describe, expect, onTestFinished, test } from 'vitest';
import { GRPC_HEALTH_WATCHES_MAX } from '../../../src/core/constants.ts';
import { HealthService } from '../../../src/rls/transport/health.ts';
import { GRPC_STATUS } from '../../../src/rls/transport/status.ts';
import { clientClass, HEALTH_SERVICE } from '../../support/rls/definitions.ts';
import { callWith, framed, grpcClient, startGrpcServer } from '../../support/rls/grpc.ts';
import { waitUntil } from '../../support/server.ts';

const SERVICES = ['', 'test.Echo', 'test'];
const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE_UNKNOWN = 3;

async function startHealth() {
  const health = new HealthService(SERVICES);
  const { unary, serverStreaming } = health;
  const { server, port } = await startGrpcServer({ unary, serverStreaming });
  const HealthClient = clientClass(HEALTH_SERVICE);
  const client = new HealthClient(`127.0.0.1:${port}`, credentials.createInsecure(), {
    'grpc.use_local_subchannel_pool': 1,
  });
  onTestFinished(() => client.close());
  const call = (method: string, request: object) => {
    return new Promise<object>((resolve, reject) => {
      client[method](request, (error: ServiceError | null, value: object) => {
        if (error === null) resolve(value);
        else reject(error);
      });
    });
  };
  /** A Watch call, with the statuses that it has received and the status that ended it. */
  const watch = (service: string) => {
    const stream = client.Watch({ service }) as ClientReadableStream<{ status: number }>;
    const watched = { statuses: [] as number[], end: -1, cancel: () => stream.cancel() };
    stream.on('data', ({ status }) => watched.statuses.push(status));
    stream.on('error', ({ code }: ServiceError) => {
      watched.end = code;
    });
    return watched;
  };
  return { health, server, port, call, watch };
}

describe('Check', () => {
  test('says whether a known service serves', async () => {
    const { health, call } = await startHealth();
    for (const service of SERVICES) {
      expect(await call('Check', { service })).toEqual({ status: SERVING });
      health.setServing(false);
      expect(await call('Check', { service })).toEqual({ status: NOT_SERVING });
      health.setServing(true);
    }
  });

  test('of an unknown service is NOT_FOUND', async () => {
    const { call } = await startHealth();
    await expect(call('Check', { service: 'other' })).rejects.toMatchObject({
      code: GRPC_STATUS.NOT_FOUND,
      details: 'unknown service "other"',
    });
  });

  test('with invalid protobuf is INTERNAL, and the next one is answered', async () => {
    const { port, call } = await startHealth();
    const invalid = callWith(grpcClient(port), '/grpc.health.v1.Health/Check', framed('x'));
    await expect(invalid).rejects.toMatchObject({ code: GRPC_STATUS.INTERNAL });
    expect(await call('Check', { service: 'test' })).toEqual({ status: SERVING });
  });
});

test('List has the status of each service', async () => {
  const { health, call } = await startHealth();
  const statuses = (status: number) => ({
    statuses: Object.fromEntries(SERVICES.map((service) => [service, { status }])),
  });
  expect(await call('List', {})).toEqual(statuses(SERVING));
  health.setServing(false);
  expect(await call('List', {})).toEqual(statuses(NOT_SERVING));
});

describe('Watch', () => {
  test('gets each change of the status', async () => {
    const { health, watch } = await startHealth();
    const watched = watch('test');
    await waitUntil('the status is known', () => watched.statuses.length === 1);
    health.setServing(true);
    health.setServing(false);
    await waitUntil('the status has changed', () => watched.statuses.length === 2);
    expect(watched.statuses).toEqual([SERVING, NOT_SERVING]);
  });

  test('of an unknown service is open, with the status SERVICE_UNKNOWN', async () => {
    const { health, watch } = await startHealth();
    const [unknown, known] = [watch('other'), watch('')];
    await waitUntil('both are open', () => unknown.statuses.length + known.statuses.length === 2);
    health.setServing(false);
    await waitUntil('the status has changed', () => known.statuses.length === 2);
    expect([unknown.statuses, unknown.end]).toEqual([[SERVICE_UNKNOWN], -1]);
  });

  test('is bounded in number, of which calls that clients cancel are not', async () => {
    const { watch } = await startHealth();
    const open = Array.from({ length: GRPC_HEALTH_WATCHES_MAX }, () => watch('test'));
    await waitUntil('all are open', () => open.every(({ statuses }) => statuses.length === 1));
    const over = watch('test');
    await waitUntil('the last one has failed', () => over.end >= 0);
    expect(over.end).toBe(GRPC_STATUS.RESOURCE_EXHAUSTED);
    for (const { cancel } of open) cancel();
    await waitUntil('another one is open', async () => {
      const again = watch('test');
      await waitUntil('it has a result', () => again.end >= 0 || again.statuses.length > 0);
      return again.statuses.length > 0;
    });
  });

  test('ends with UNAVAILABLE when the server drains', async () => {
    const { health, server, watch } = await startHealth();
    const watched = watch('');
    await waitUntil('the status is known', () => watched.statuses.length === 1);
    health.setServing(false);
    await server.drain();
    await waitUntil('the call has ended', () => watched.end >= 0);
    expect(watched).toMatchObject({
      statuses: [SERVING, NOT_SERVING],
      end: GRPC_STATUS.UNAVAILABLE,
    });
  });
});
