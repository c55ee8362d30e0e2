/** How weir uses a Redis or Valkey: the settings of the engine, as every thread is given them. */

export const ENGINE_DOWN_POLICIES = ['local', 'allow', 'deny'] as const;
export type EngineDownPolicy = (typeof ENGINE_DOWN_POLICIES)[number];

export const LOCAL_SHARES = ['whole', 'divided'] as const;
export type LocalShare = (typeof LOCAL_SHARES)[number];

export const RECOVERY_MODES = ['exact', 'available'] as const;
export type RecoveryMode = (typeof RECOVERY_MODES)[number];

export const EVICTION_MODES = ['refuse', 'accept'] as const;
export type EvictionMode = (typeof EVICTION_MODES)[number];

export interface RedisSettings {
  /** Any of the forms that `url.ts` accepts. It may contain a password. */
  url: string;
  /** Read from a file; takes precedence over the one in the URL. */
  password: string | undefined;
  /** PEM texts. A CA replaces those of the system. */
  tls: { ca: string | undefined; cert: string | undefined; key: string | undefined };
  /** How long a check waits for Redis, ms. `onEngineDown` decides it then. */
  timeoutMs: number;
  /** Begins the names of all keys and channels. */
  prefix: string;
  /** Whether machines take tokens in advance. Without leases each check is a round trip. */
  leases: boolean;
  /** How often usage that Redis does not know yet is reported. */
  syncMs: number;
  onEngineDown: EngineDownPolicy;
  localShare: LocalShare;
  recovery: RecoveryMode;
  /** Whether a Redis that deletes keys when its memory is full is used. */
  eviction: EvictionMode;
  /** How many replicas must have received each change; 0 waits for none. */
  waitForReplicas: number;
}
