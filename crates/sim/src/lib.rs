//! Simulated devices, torture and the model that checks the promise.
