"""Beyond one machine: batch jobs and a service on Ray (`pip install 'onesdaug[ray]'`)."""
