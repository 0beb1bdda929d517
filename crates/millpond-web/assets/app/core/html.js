// The vendored libraries under one roof: everything else imports them from here.

import { Component, Fragment, h, render } from '../../vendor/preact/preact.js';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../vendor/preact/hooks.js';
import { batch, computed, effect, signal, untracked } from '../../vendor/signals/signals.js';
import htm from '../../vendor/htm/htm.js';

/** Templates: text in `${}` is always text, never markup. @type {(parts: TemplateStringsArray, ...values: any[]) => any} */
const html = htm.bind(h);

export {
  Component,
  Fragment,
  batch,
  computed,
  effect,
  h,
  html,
  render,
  signal,
  untracked,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
};
