/** The protocol of the scripts, for the engine. `scripts` must not import the engine's folder. */

export * from './scripts/protocol.ts';
